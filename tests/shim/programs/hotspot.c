// Heat on a chip: each cell exchanges with its four neighbours and the air, and its power heats it. A
// group has its cells and their neighbours in local memory.
#include "cl.h"

enum { tile = 16 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 48, tile), steps = cl_size(argc, argv, 2, 4, 1);
	size_t cells = (size_t)n * n;
	float *heat = malloc(sizeof(float) * cells), *power = malloc(sizeof(float) * cells);
	float across = 0.0625f, along = 0.125f, up = 0.03125f, air = 80, scale = 0.5f;
	double *want = malloc(sizeof(double) * cells), *next = malloc(sizeof(double) * cells);
	for (size_t i = 0; i < cells; i++) {
		want[i] = heat[i] = 300 + cl_random() % 4096 / 128.0f;
		power[i] = cl_random() % 1024 / 256.0f;
	}
	for (int s = 0; s < steps; s++) {
		for (int y = 0; y < n; y++)
			for (int x = 0; x < n; x++) {
				double v = want[y * n + x], l = want[y * n + (x > 0 ? x - 1 : x)], r = want[y * n + (x < n - 1 ? x + 1 : x)];
				double t = want[(y > 0 ? y - 1 : y) * n + x], b = want[(y < n - 1 ? y + 1 : y) * n + x];
				next[y * n + x] = v + scale * (power[y * n + x] + (l + r - 2 * v) * across + (t + b - 2 * v) * along + (air - v) * up);
			}
		double *t = want;
		want = next;
		next = t;
	}

	cl_open();
	cl_kernel k = cl_build(
		"kernel void heat(global const float *from, global float *to, global const float *power, int n,"
		"		float across, float along, float up, float air, float scale) {"
		"	local float t[18][18];"
		"	int x = get_global_id(0), y = get_global_id(1), i = get_local_id(0) + 1, j = get_local_id(1) + 1;"
		"	t[j][i] = from[y * n + x];"
		"	if (i == 1) t[j][0] = from[y * n + max(x - 1, 0)];"
		"	if (i == 16) t[j][17] = from[y * n + min(x + 1, n - 1)];"
		"	if (j == 1) t[0][i] = from[max(y - 1, 0) * n + x];"
		"	if (j == 16) t[17][i] = from[min(y + 1, n - 1) * n + x];"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	float v = t[j][i];"
		"	to[y * n + x] = v + scale * (power[y * n + x] + (t[j][i - 1] + t[j][i + 1] - 2 * v) * across"
		"		+ (t[j - 1][i] + t[j + 1][i] - 2 * v) * along + (air - v) * up);"
		"}", "heat");
	cl_mem sides[] = {cl_buffer(sizeof(float) * cells, heat), cl_buffer(sizeof(float) * cells, NULL)}, powers = cl_buffer(sizeof(float) * cells, power);
	ARG(k, 2, powers);
	ARG(k, 3, n);
	ARG(k, 4, across);
	ARG(k, 5, along);
	ARG(k, 6, up);
	ARG(k, 7, air);
	ARG(k, 8, scale);
	while (cl_round()) {
		for (int s = 0; s < steps; s++) {
			ARG(k, 0, sides[s % 2]);
			ARG(k, 1, sides[(s + 1) % 2]);
			cl_run(k, 2, (size_t[]){n, n}, (size_t[]){tile, tile});
		}
	}
	cl_read(sides[steps % 2], sizeof(float) * cells, heat);
	double off = cl_near("hotspot", heat, want, cells, 1, 2 + steps);
	cl_right("hotspot", "%d x %d after %d steps within %.1f of %d ulps", n, n, steps, off, 2 + steps);
}
