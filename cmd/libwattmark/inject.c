#include <stdlib.h>
#include <unistd.h>

extern void wattmark_detach(void);

static pid_t owner;

/* A child that forked has no Go threads: a call into Go would never return. So the
 * process is looked at here. */
static void at_exit(void) {
  if (getpid() == owner) wattmark_detach();
}

int wattmark_at_exit(void) {
  if (owner == getpid()) return 0;
  owner = getpid();
  return atexit(at_exit);
}
