/*
 * The interface of Cheng et al., "A precise measurement tool for power
 * dissipation of CUDA kernels", Figs. 5 and 7, under its own names.
 *
 *   P_startMonitor();
 *   P_marker();  kernel<<<grid, block>>>(...);  P_marker();
 *   P_stopMonitor();
 *   int data = P_waitData();
 *   struct record *rec = malloc(P_receiveData(data, NULL) * sizeof *rec);
 *   int n = P_receiveData(data, rec);
 *   P_storeData(rec);
 *
 * Where the paper does not say, this does: functions return 0, or a number
 * that is asked for, and -1 on failure. One measurement at a time a process.
 * WATTMARK_MONITOR, WATTMARK_DB, WATTMARK_USER and WATTMARK_TASK say where and
 * for whom. Reference: docs/c-api.md.
 */
#ifndef WATTMARK_POWER_H
#define WATTMARK_POWER_H

#ifdef __cplusplus
extern "C" {
#endif

/* One sample: the twelve columns of the paper's Table 1. NaN: not measured. */
struct record {
  int taskID;
  char taskName[128];
  char user[64];
  double power;    /* W, of all rails */
  double current1; /* A, direct supply */
  double current2; /* A, slot 3.3 V */
  double current3; /* A, slot 12 V */
  double voltage1; /* V, alike */
  double voltage2;
  double voltage3;
  char taskTime[32]; /* when the task began, ISO 8601 in UTC */
  int seqNum;        /* within the task */
};

/* Fig. 7 */

/* The first call plays the start marker; the second waits for the work and plays the stop marker. */
int P_marker(void);
/* Take the bench and start sampling. The GPU is the current context's. */
int P_startMonitor(void);
/* Stop sampling. Before the second marker, the measurement is given up. */
int P_stopMonitor(void);
/* Wait until all samples are here; returns a handle above 0 for P_receiveData. */
int P_waitData(void);
/* Copy all samples between the markers; returns how many. With rec NULL it only counts them. */
int P_receiveData(int sock_fd, struct record *rec);
/* Keep these samples in the database; otherwise they are dropped at the next start, or at exit. */
int P_storeData(struct record *rec);
/* Run a built-in kernel for so many milliseconds, and wait for it. */
int P_half_test(int time);
int P_compute_test(int time);
int P_memory_test(int time);
/* Print the last error, with all causes, on the standard error; returns its code (enum wm_code), 0 for none. */
int P_getError(void);

/* Fig. 5: what is read is printed on the standard output, separated by tabs */

int dbOpen(char *dbName);
/* Print the samples; returns how many. */
int dbReadByID(int ID);
int dbReadByTaskName(char *name);
/* Print the names of all users; returns how many. */
int dbGetUser(void);
/* Print the tasks of a user: taskID, taskName, taskTime; returns how many. */
int dbGetTaskByUser(char *user);
/* Delete; returns how many tasks. */
int dbDeleteByID(int ID);
int dbDeleteByTaskName(char *taskName);
int dbDeleteByUser(char *user);
int dbClose(void);

#ifdef __cplusplus
}
#endif
#endif
