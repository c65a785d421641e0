// Each rank computes for a part of each second that grows with its number and then waits for the other ranks. At the end,
// each rank prints the CPU time it used.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
	int rank, ranks, seconds = argc > 1 ? atoi(argv[1]) : 1;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	time_t end = time(NULL) + seconds;
	for (int on = 1, all = 1; all; on = time(NULL) < end) {
		clock_t until = clock() + CLOCKS_PER_SEC * (rank + 1) / (4 * ranks);
		while (clock() < until)
			;
		// MPI_Wait would busy-wait.
		MPI_Request met;
		MPI_Iallreduce(&on, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &met);
		for (int done = 0; MPI_Test(&met, &done, MPI_STATUS_IGNORE), !done;)
			usleep(10000);
	}
	printf("RANK %d CPU %.2f\n", rank, cpu());
	MPI_Finalize();
	return 0;
}
