// Speckle reduction by anisotropic diffusion: sums of the picture for its mean and variance, a
// coefficient for each cell from its gradient, then the diffusion.
#include "cl.h"

enum { group = 64, parts = 4 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 32, 16), steps = cl_size(argc, argv, 2, 2, 1);
	size_t cells = (size_t)n * n;
	float *got = malloc(sizeof(float) * cells), rate = 0.5f;
	double *want = malloc(sizeof(double) * cells), *c = malloc(sizeof(double) * cells), (*d)[4] = malloc(sizeof(double) * 4 * cells);
	for (size_t i = 0; i < cells; i++)
		want[i] = got[i] = exp((cl_random() % 256) / 255.0f);
	for (int s = 0; s < steps; s++) {
		double sum = 0, squares = 0;
		for (size_t i = 0; i < cells; i++) {
			sum += want[i];
			squares += want[i] * want[i];
		}
		double mean = sum / cells, q0 = (squares / cells - mean * mean) / (mean * mean);
		for (int y = 0; y < n; y++)
			for (int x = 0; x < n; x++) {
				int i = y * n + x;
				double v = want[i];
				d[i][0] = want[(y > 0 ? y - 1 : y) * n + x] - v;
				d[i][1] = want[(y < n - 1 ? y + 1 : y) * n + x] - v;
				d[i][2] = want[y * n + (x > 0 ? x - 1 : x)] - v;
				d[i][3] = want[y * n + (x < n - 1 ? x + 1 : x)] - v;
				double g = 0, l = 0;
				for (int k = 0; k < 4; k++) {
					g += d[i][k] * d[i][k] / (v * v);
					l += d[i][k] / v;
				}
				double den = 1 + l / 4, q = (g / 2 - l * l / 16) / (den * den);
				c[i] = fmin(fmax(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0), 1);
			}
		for (int y = 0; y < n; y++)
			for (int x = 0; x < n; x++) {
				int i = y * n + x;
				double south = c[(y < n - 1 ? y + 1 : y) * n + x], east = c[y * n + (x < n - 1 ? x + 1 : x)];
				want[i] += rate / 4 * (c[i] * d[i][0] + south * d[i][1] + c[i] * d[i][2] + east * d[i][3]);
			}
	}

	cl_open();
	cl_program p = cl_compile(
		"kernel void sums(global const float *v, global float2 *out, int cells) {"
		"	local float2 part[64];"
		"	int me = get_local_id(0);"
		"	float2 sum = 0;"
		"	for (int i = get_global_id(0); i < cells; i += get_global_size(0))"
		"		sum += (float2)(v[i], v[i] * v[i]);"
		"	part[me] = sum;"
		"	for (int k = 32; k > 0; k /= 2) {"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		if (me < k) part[me] += part[me + k];"
		"	}"
		"	if (me == 0) out[get_group_id(0)] = part[0];"
		"}"
		"kernel void coefficients(global const float *in, global float4 *d, global float *c, int n, float q0) {"
		"	int x = get_global_id(0), y = get_global_id(1), i = y * n + x;"
		"	float v = in[i];"
		"	float4 e = (float4)(in[max(y - 1, 0) * n + x], in[min(y + 1, n - 1) * n + x],"
		"		in[y * n + max(x - 1, 0)], in[y * n + min(x + 1, n - 1)]) - v;"
		"	d[i] = e;"
		"	float g = dot(e, e) / (v * v), l = (e.x + e.y + e.z + e.w) / v, den = 1 + l / 4;"
		"	float q = (g / 2 - l * l / 16) / (den * den);"
		"	c[i] = clamp(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0.0f, 1.0f);"
		"}"
		"kernel void diffuse(global float *v, global const float4 *d, global const float *c, int n, float rate) {"
		"	int x = get_global_id(0), y = get_global_id(1), i = y * n + x;"
		"	float4 e = d[i];"
		"	float south = c[min(y + 1, n - 1) * n + x], east = c[y * n + min(x + 1, n - 1)];"
		"	v[i] += rate / 4 * (c[i] * e.x + south * e.y + c[i] * e.z + east * e.w);"
		"}");
	cl_kernel sums = cl_kernel_of(p, "sums"), coefficients = cl_kernel_of(p, "coefficients"), diffuse = cl_kernel_of(p, "diffuse");
	cl_mem v = cl_buffer(sizeof(float) * cells, got), ds = cl_buffer(sizeof(float) * 4 * cells, NULL);
	cl_mem cs = cl_buffer(sizeof(float) * cells, NULL), outs = cl_buffer(sizeof(float) * 2 * parts, NULL);
	int count = cells;
	ARG(sums, 0, v);
	ARG(sums, 1, outs);
	ARG(sums, 2, count);
	ARG(coefficients, 0, v);
	ARG(coefficients, 1, ds);
	ARG(coefficients, 2, cs);
	ARG(coefficients, 3, n);
	ARG(diffuse, 0, v);
	ARG(diffuse, 1, ds);
	ARG(diffuse, 2, cs);
	ARG(diffuse, 3, n);
	ARG(diffuse, 4, rate);
	while (cl_round()) {
		for (int s = 0; s < steps; s++) {
			float out[parts][2];
			double sum = 0, squares = 0;
			cl_run(sums, 1, (size_t[]){parts * group}, (size_t[]){group});
			cl_read(outs, sizeof out, out);
			for (int i = 0; i < parts; i++) {
				sum += out[i][0];
				squares += out[i][1];
			}
			double mean = sum / cells;
			float q0 = (squares / cells - mean * mean) / (mean * mean);
			ARG(coefficients, 4, q0);
			cl_run(coefficients, 2, (size_t[]){n, n}, (size_t[]){16, 4});
			cl_run(diffuse, 2, (size_t[]){n, n}, (size_t[]){16, 4});
		}
	}
	cl_read(v, sizeof(float) * cells, got);
	double off = cl_near("srad", got, want, cells, 1, 32);
	cl_right("srad", "%d x %d after %d steps within %.1f of 32 ulps", n, n, steps, off);
}
