// Sums of groups of numbers, through shared memory with barriers.
#include "cl.h"

enum { each = 128 };

int main(int argc, char **argv)
{
	int groups = cl_size(argc, argv, 1, 8, 1), n = groups * each;
	uint32_t *in = malloc(sizeof *in * n), *out = malloc(sizeof *out * groups), *want = calloc(groups, sizeof *want);
	for (int i = 0; i < n; i++) {
		in[i] = i * 2654435761u;
		want[i / each] += in[i];
	}
	cl_open();
	cl_kernel k = cl_build(
		"kernel void reduce(global int *out, global const int *in, local int *part) {"
		"	int i = get_local_id(0);"
		"	part[i] = in[get_global_id(0)];"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int n = get_local_size(0) / 2; n > 0; n /= 2) {"
		"		if (i < n)"
		"			part[i] += part[i + n];"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"	}"
		"	if (i == 0)"
		"		out[get_group_id(0)] = part[0];"
		"}", "reduce");
	cl_mem ins = cl_buffer(sizeof *in * n, in), outs = cl_buffer(sizeof *out * groups, NULL);
	ARG(k, 0, outs);
	ARG(k, 1, ins);
	CHECK(clSetKernelArg(k, 2, each * sizeof(int), NULL));
	while (cl_round())
		cl_run(k, 1, (size_t[]){n}, (size_t[]){each});
	cl_read(outs, sizeof *out * groups, out);
	cl_equal("reduce", out, want, sizeof *out * groups);
	cl_right("reduce", "%d sums of %d numbers equal", groups, each);
}
