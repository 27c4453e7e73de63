// Forces between many bodies: each thread sums over all, which its group brings to local memory in parts.
#include "cl.h"

enum { part = 64 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 256, part);
	float (*body)[4] = malloc(sizeof *body * n), *got = malloc(sizeof *body * n), soft = 0.25f;
	double *want = calloc(n, 4 * sizeof *want);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < 4; k++) // the last is the mass
			body[i][k] = cl_random() % 1000 / 1000.0f;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			double d[3], squares = soft;
			for (int k = 0; k < 3; k++) {
				d[k] = (double)body[j][k] - body[i][k];
				squares += d[k] * d[k];
			}
			for (int k = 0; k < 3; k++)
				want[4 * i + k] += body[j][3] / (squares * sqrt(squares)) * d[k];
		}

	cl_open();
	cl_kernel k = cl_build(
		"kernel void forces(global const float4 *body, global float4 *force, int n, float soft) {"
		"	local float4 others[64];"
		"	int me = get_local_id(0), i = get_global_id(0);"
		"	float4 at = body[i], sum = 0;"
		"	for (int first = 0; first < n; first += 64) {"
		"		others[me] = body[first + me];"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		for (int j = 0; j < 64; j++) {"
		"			float4 d = others[j] - at;"
		"			float r = rsqrt(d.x * d.x + d.y * d.y + d.z * d.z + soft);"
		"			sum += others[j].w * r * r * r * d;"
		"		}"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"	}"
		"	sum.w = 0;"
		"	force[i] = sum;"
		"}", "forces");
	cl_mem bodies = cl_buffer(sizeof *body * n, body), forces = cl_buffer(sizeof *body * n, NULL);
	ARG(k, 0, bodies);
	ARG(k, 1, forces);
	ARG(k, 2, n);
	ARG(k, 3, soft);
	while (cl_round())
		cl_run(k, 1, (size_t[]){n}, (size_t[]){part});
	cl_read(forces, sizeof *body * n, got);
	double off = cl_near("nbody", got, want, 4 * (size_t)n, n, 16); // of the sum of all, whose parts cancel
	cl_right("nbody", "%d bodies within %.1f of 16 ulps", n, off);
}
