// Many tiny launches of one warp. Each needs what the one before it left.
#include "cl.h"

enum { threads = 32 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 20, 1);
	uint32_t got[threads], want[threads];
	for (uint32_t i = 0; i < threads; i++)
		got[i] = want[i] = i;
	for (uint32_t l = 0; l < n; l++)
		for (int i = 0; i < threads; i++)
			want[i] = want[i] * 1664525 + (l ^ i);

	cl_open();
	cl_kernel k = cl_build(
		"kernel void next(global uint *x, uint l) {"
		"	uint i = get_global_id(0);"
		"	x[i] = x[i] * 1664525 + (l ^ i);"
		"}", "next");
	cl_mem xs = cl_buffer(sizeof got, got);
	ARG(k, 0, xs);
	while (cl_round()) {
		for (uint32_t l = 0; l < n; l++) {
			ARG(k, 1, l);
			cl_run(k, 1, (size_t[]){threads}, (size_t[]){threads});
		}
	}
	cl_read(xs, sizeof got, got);
	cl_equal("storm", got, want, sizeof got);
	cl_right("storm", "%d launches equal", n);
}
