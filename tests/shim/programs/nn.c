// The nearest of many places: distances on the device, the choice on the host.
#include "cl.h"

enum { nearest = 5 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 500, 1);
	float (*place)[2] = malloc(sizeof(float) * 2 * n), *got = malloc(sizeof(float) * n), x = 30.5f, y = -70.25f;
	double *want = malloc(sizeof(double) * n);
	for (int i = 0; i < n; i++) {
		place[i][0] = (int)(cl_random() % 1440) / 8.0f - 90;
		place[i][1] = (int)(cl_random() % 2880) / 8.0f - 180;
		want[i] = hypot(place[i][0] - x, place[i][1] - y);
	}

	cl_open();
	cl_kernel k = cl_build(
		"kernel void distances(global const float2 *place, global float *out, int n, float x, float y) {"
		"	int i = get_global_id(0);"
		"	if (i < n) {"
		"		float a = place[i].x - x, b = place[i].y - y;"
		"		out[i] = sqrt(a * a + b * b);"
		"	}"
		"}", "distances");
	cl_mem places = cl_buffer(sizeof(float) * 2 * n, place), outs = cl_buffer(sizeof(float) * n, NULL);
	ARG(k, 0, places);
	ARG(k, 1, outs);
	ARG(k, 2, n);
	ARG(k, 3, x);
	ARG(k, 4, y);
	while (cl_round()) {
		cl_run(k, 1, (size_t[]){(size_t)(n + 63) / 64 * 64}, (size_t[]){64});
	}
	cl_read(outs, sizeof(float) * n, got);
	double off = cl_near("nn", got, want, n, 1e-3, 4);
	double last = 0;
	for (int i = 0; i < nearest && i < n; i++) {
		int best = -1;
		for (int j = 0; j < n; j++)
			if (got[j] >= 0 && (best < 0 || got[j] < got[best]))
				best = j;
		last = got[best];
		got[best] = -1;
	}
	cl_right("nn", "%d of %d places are within %.3f, distances to %.1f of 4 ulps", nearest, n, last, off);
}
