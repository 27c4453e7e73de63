// Runs kernels that are called k0 and so on, and writes what they leave.
#include "cl.h"

enum { threads = 64, sums = 16 };

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: run SOURCE KERNELS RESULTS\n");
		return 1;
	}
	static char source[1 << 20];
	FILE *f = fopen(argv[1], "r"), *to = fopen(argv[3], "w");
	if (!f || !to || !fread(source, 1, sizeof source - 1, f)) {
		perror(argv[1]);
		return 1;
	}
	const uint32_t edges[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xffff, 0x8000, 0x80};
	uint32_t in[threads * 4], out[threads], sum[sums];
	for (int i = 0; i < threads * 4; i++) {
		in[i] = cl_random() ^ cl_random() << 1;
		if (in[i] % 5 == 0)
			in[i] = edges[in[i] / 5 % 8];
	}
	cl_open();
	cl_program p = cl_compile(source);
	cl_mem ins = cl_buffer(sizeof in, in), outs = cl_buffer(sizeof out, NULL), sumsm = cl_buffer(sizeof sum, NULL);
	for (int i = 0; i < atoi(argv[2]); i++) {
		char name[20];
		sprintf(name, "k%d", i);
		cl_kernel k = cl_kernel_of(p, name);
		memset(sum, 0, sizeof sum);
		cl_write(sumsm, sizeof sum, sum);
		ARG(k, 0, outs);
		ARG(k, 1, ins);
		ARG(k, 2, sumsm);
		cl_run(k, 1, (size_t[]){threads}, (size_t[]){threads});
		cl_read(outs, sizeof out, out);
		cl_read(sumsm, sizeof sum, sum);
		fwrite(out, 1, sizeof out, to);
		fwrite(sum, 1, sizeof sum, to);
		fflush(to);
	}
	return fclose(to);
}
