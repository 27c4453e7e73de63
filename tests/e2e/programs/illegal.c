// For this kernel, Mesa's compiler for Fermi emits a word that is no instruction.
#include "cl.h"

int main(void)
{
	char in[64] = {100}, out[64];
	cl_open();
	cl_kernel k = cl_build(
		"kernel void illegal(global char *a) {"
		"	int i = get_global_id(0);"
		"	a[i] = add_sat(a[i], (char)100);"
		"}", "illegal");
	cl_mem a = cl_buffer(sizeof in, in);
	CHECK(clSetKernelArg(k, 0, sizeof a, &a));
	cl_run(k, 1, (size_t[]){sizeof in}, (size_t[]){32});
	cl_read(a, sizeof out, out);
	printf("illegal: %d\n", out[0]);
}
