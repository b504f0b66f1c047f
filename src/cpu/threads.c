/* SPDX-License-Identifier: MIT
** threads.c - a small pool of threads that shares out numbered tasks.
**
** One job at a time.  Its fields are written under the lock before the generation moves on; a
** worker joins a job under the lock, while it is open, and takes tasks from an atomic counter.  The
** caller closes the job when the counter has run out and waits for those who joined: nobody looks
** at a job after the run that owns it has returned.
*/
#define _GNU_SOURCE /* sched_getaffinity */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../interrupt.h"

volatile sig_atomic_t pln_interrupted;

#define MAX_THREADS 256
#define SPINS 200 /* looks at the generation before sleeping: some microseconds */

struct pln_Threads {
  pthread_mutex_t run;   /* held by the one caller whose job is on */
  pthread_mutex_t lock;  /* guards what follows, up to the counter */
  pthread_cond_t wake;   /* the generation moved on, or the pool ends */
  pthread_cond_t done;   /* the last worker left a closed job */
  void (*fn)(void *ctx, int64_t task);
  void *ctx;
  int64_t ntasks;
  int joined;            /* workers inside the job */
  bool open;             /* workers may join the job */
  bool quit;
  _Atomic int64_t next;  /* the next task to hand out */
  _Atomic unsigned generation;
  unsigned forks;        /* forks of the process when the workers were started */
  int count;             /* threads asked for, the caller included */
  int started;           /* workers running */
  atomic_bool stopped;   /* polled tasks were skipped and nobody has asked yet */
  bool spin;             /* a processor for each thread, so that waiting awake harms nobody */
  pthread_t worker[];
};

/* In the child of a fork only the forking thread lives on; pools see by this count that theirs are
** gone and that their locks are in an unknown state. */
static _Atomic unsigned forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork (void) {
  atomic_fetch_add(&forks, 1);
}

static void watch_forks (void) {
  pthread_atfork(NULL, NULL, count_fork);
}

static int processors (void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n < 1 ? 1 : n;
}

static void relax (void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void init_sync (pln_Threads *pool) {
  pthread_mutex_init(&pool->run, NULL);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pthread_cond_init(&pool->done, NULL);
  pool->joined = 0;
  pool->open = false;
  pool->started = 0;
  pool->forks = atomic_load(&forks);
}

pln_Threads *pln_threads_new (int n) {
  int cpus = processors();
  if (n <= 0) n = cpus;
  if (n > MAX_THREADS) n = MAX_THREADS;
  pln_Threads *pool = calloc(1, sizeof *pool + (size_t)(n - 1) * sizeof(pthread_t));
  if (pool == NULL) return NULL;
  pthread_once(&fork_once, watch_forks);
  pool->count = n;
  pool->spin = n <= cpus;
  init_sync(pool);
  return pool;
}

void pln_threads_free (pln_Threads *pool) {
  if (pool == NULL) return;
  if (pool->forks == atomic_load(&forks)) { /* else the workers stayed in the parent */
    pthread_mutex_lock(&pool->lock);
    pool->quit = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->worker[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->run);
  }
  free(pool);
}

int pln_threads_count (const pln_Threads *pool) {
  return pool == NULL ? 1 : pool->count;
}

static void take_tasks (pln_Threads *pool, void (*fn)(void *, int64_t), void *ctx, int64_t n) {
  for (;;) {
    int64_t task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    if (task >= n) return;
    fn(ctx, task);
  }
}

static void *work (void *arg) {
  pln_Threads *pool = arg;
  unsigned seen = 0; /* generations start at 1 with the first job */
  for (;;) {
    if (pool->spin)
      for (int i = 0; i < SPINS && atomic_load(&pool->generation) == seen; i++) relax();
    pthread_mutex_lock(&pool->lock);
    while (!pool->quit && atomic_load(&pool->generation) == seen)
      pthread_cond_wait(&pool->wake, &pool->lock);
    seen = atomic_load(&pool->generation);
    if (pool->quit) break;
    if (pool->open) {
      void (*fn)(void *, int64_t) = pool->fn;
      void *ctx = pool->ctx;
      int64_t n = pool->ntasks;
      pool->joined++;
      pthread_mutex_unlock(&pool->lock);
      take_tasks(pool, fn, ctx, n);
      pthread_mutex_lock(&pool->lock);
      if (--pool->joined == 0 && !pool->open) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* Signals are for the host's own threads.  A worker that cannot be had is done without. */
static void start_workers (pln_Threads *pool) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (pool->started < pool->count - 1
         && pthread_create(&pool->worker[pool->started], NULL, work, pool) == 0)
    pool->started++;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void pln_threads_run (pln_Threads *pool, int64_t ntasks, void (*fn)(void *ctx, int64_t task),
                      void *ctx) {
  if (pool != NULL && pool->count > 1 && ntasks > 1) {
    if (pool->forks != atomic_load(&forks)) init_sync(pool);
    if (pthread_mutex_trylock(&pool->run) == 0) {
      pthread_mutex_lock(&pool->lock);
      pool->fn = fn;
      pool->ctx = ctx;
      pool->ntasks = ntasks;
      pool->open = true;
      atomic_store(&pool->next, 0);
      atomic_fetch_add(&pool->generation, 1);
      if (ntasks > pool->started) pthread_cond_broadcast(&pool->wake);
      else
        for (int64_t i = 1; i < ntasks; i++) pthread_cond_signal(&pool->wake);
      pthread_mutex_unlock(&pool->lock);
      if (pool->started == 0) start_workers(pool);
      take_tasks(pool, fn, ctx, ntasks);
      pthread_mutex_lock(&pool->lock);
      pool->open = false;
      while (pool->joined > 0) pthread_cond_wait(&pool->done, &pool->lock);
      pthread_mutex_unlock(&pool->lock);
      pthread_mutex_unlock(&pool->run);
      return;
    }
  }
  for (int64_t task = 0; task < ntasks; task++) fn(ctx, task);
}

typedef struct Polled {
  pln_Threads *pool;
  void (*fn)(void *ctx, int64_t task);
  void *ctx;
} Polled;

bool pln_threads_poll (pln_Threads *pool) {
  if (pool == NULL) return false;
  if (pln_interrupted) atomic_store_explicit(&pool->stopped, true, memory_order_relaxed);
  return atomic_load_explicit(&pool->stopped, memory_order_relaxed);
}

static void polled_task (void *ctx, int64_t task) {
  const Polled *q = ctx;
  if (!pln_threads_poll(q->pool)) q->fn(q->ctx, task);
}

void pln_threads_run_polled (pln_Threads *pool, int64_t ntasks,
                             void (*fn)(void *ctx, int64_t task), void *ctx) {
  Polled q = { pool, fn, ctx };
  if (pool == NULL) pln_threads_run(NULL, ntasks, fn, ctx);
  else pln_threads_run(pool, ntasks, polled_task, &q);
}

bool pln_threads_stopped (pln_Threads *pool) {
  return pool != NULL && atomic_load_explicit(&pool->stopped, memory_order_relaxed)
         && atomic_exchange(&pool->stopped, false);
}
