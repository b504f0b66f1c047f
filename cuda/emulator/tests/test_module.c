/* SPDX-License-Identifier: MIT
 * Loads the module into a program that has runtime symbols of its own, as one that links cudart
 * has, from a thread that is younger than the module and from one that is older. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

int cudaMalloc(void **p, unsigned long bytes);
int cudaMalloc(void **p, unsigned long bytes) {
  (void)p, (void)bytes;
  printf("the module called the program's cudaMalloc\n");
  return 999;
}

static pthread_barrier_t loaded;
static int (*run)(float);

static void *in_thread(void *older) {
  if (older) pthread_barrier_wait(&loaded);
  return run(2.0f) ? older : NULL;
}

int main(int count, char **arguments) {
  pthread_t older, younger;
  void *ok;
  if (count != 2) return 2;
  pthread_barrier_init(&loaded, NULL, 2);
  pthread_create(&older, NULL, in_thread, &loaded);
  void *module = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (!module) {
    printf("%s\n", dlerror());
    return 1;
  }
  run = (int (*)(float))dlsym(module, "module_run");
  if (!run || dlsym(module, "cudaMemcpy")) {
    printf("wrong exports\n");
    return 1;
  }
  pthread_barrier_wait(&loaded);
  pthread_join(older, &ok);
  pthread_create(&younger, NULL, in_thread, NULL);
  pthread_join(younger, NULL);
  const int right = ok != NULL && run(1.0f);
  dlclose(module);
  printf("module is %s\n", right ? "right" : "wrong");
  return !right;
}
