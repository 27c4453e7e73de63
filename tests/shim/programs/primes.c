// Counts primes by trial division: integer division, lanes that leave a loop at different times,
// atomics. primes [BELOW [SECONDS]] counts those below a number, again and again for a while.
#include "cl.h"
#include <time.h>

int main(int argc, char **argv)
{
	uint32_t below = argc > 1 ? atoi(argv[1]) : 4096, want = 0;
	time_t seconds = argc > 2 ? atoi(argv[2]) : 0;
	char *composite = calloc(below, 1), name[64];
	for (uint32_t i = 2; i < below; i++) {
		want += !composite[i];
		for (uint32_t j = 2 * i; j < below; j += i)
			composite[j] = 1;
	}
	cl_open();
	CHECK(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));
	cl_kernel k = cl_build(
		"kernel void primes(global uint *count, uint below) {"
		"	uint v = get_global_id(0);"
		"	if (v < 2 || v >= below)"
		"		return;"
		"	for (uint d = 2; d * d <= v; d++)"
		"		if (v % d == 0)"
		"			return;"
		"	atomic_inc(count);"
		"}", "primes");
	cl_mem counts = cl_buffer(sizeof want, NULL);
	CHECK(clSetKernelArg(k, 0, sizeof counts, &counts));
	CHECK(clSetKernelArg(k, 1, sizeof below, &below));
	int rounds = 0;
	time_t end = time(NULL) + seconds;
	do {
		uint32_t count = 0;
		CHECK(clEnqueueWriteBuffer(queue, counts, CL_TRUE, 0, sizeof count, &count, 0, NULL, NULL));
		cl_run(k, 1, (size_t[]){(below + 63) / 64 * 64}, (size_t[]){64});
		cl_read(counts, sizeof count, &count);
		if (count != want) {
			fprintf(stderr, "primes: %u below %u, want %u\n", count, below, want);
			return 2;
		}
		rounds++;
	} while (time(NULL) < end);
	printf("%s finds %u primes below %u, as the CPU does", name, want, below);
	printf(rounds > 1 ? ", %d times\n" : "\n", rounds);
}
