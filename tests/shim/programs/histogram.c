// How often each byte occurs: a group counts in local memory, and adds that to the counts of all.
#include "cl.h"

enum { group = 64, each = 64 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 2 * group * each, group * each);
	uint32_t got[256] = {0}, want[256] = {0};
	uint8_t *in = malloc(n);
	for (int i = 0; i < n; i++)
		want[in[i] = cl_random() % 256 & cl_random() % 256]++;

	cl_open();
	cl_kernel k = cl_build(
		"kernel void count(global const uchar *in, global uint *counts, int each) {"
		"	local uint mine[256];"
		"	int me = get_local_id(0), n = get_local_size(0), first = get_group_id(0) * n * each;"
		"	for (int i = me; i < 256; i += n) mine[i] = 0;"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int i = 0; i < each; i++) atomic_inc(&mine[in[first + i * n + me]]);"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int i = me; i < 256; i += n) atomic_add(&counts[i], mine[i]);"
		"}", "count");
	cl_mem ins = cl_buffer(n, in), counts = cl_buffer(sizeof got, got);
	int bytes = each;
	ARG(k, 0, ins);
	ARG(k, 1, counts);
	ARG(k, 2, bytes);
	while (cl_round())
		cl_run(k, 1, (size_t[]){n / each}, (size_t[]){group});
	cl_read(counts, sizeof got, got);
	cl_equal("histogram", got, want, sizeof got);
	cl_right("histogram", "%d bytes counted", n);
}
