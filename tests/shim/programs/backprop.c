// One step of training of a network with a hidden layer: forward by groups of 16 inputs, errors on the
// host, and new weights with momentum.
#include "cl.h"

enum { hidden = 16 };

static double squash(double v) { return 1 / (1 + exp(-v)); }

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 64, 16), groups = n / 16;
	size_t cells = (size_t)n * hidden;
	float *in = malloc(sizeof(float) * n), *w = malloc(sizeof(float) * cells), *old = malloc(sizeof(float) * cells);
	float out[hidden], *part = malloc(sizeof(float) * groups * hidden), rate = 0.3f, momentum = 0.25f, target = 0.75f;
	for (int i = 0; i < n; i++)
		in[i] = cl_random() % 256 / 256.0f;
	for (size_t i = 0; i < cells; i++) {
		w[i] = cl_random() % 256 / 512.0f / n;
		old[i] = cl_random() % 256 / 4096.0f;
	}
	for (int j = 0; j < hidden; j++)
		out[j] = cl_random() % 256 / 512.0f;
	double act[hidden], y = 0, *want = malloc(sizeof(double) * cells);
	for (int j = 0; j < hidden; j++) {
		double sum = 0;
		for (int i = 0; i < n; i++)
			sum += (double)in[i] * w[i * hidden + j];
		act[j] = squash(sum);
		y += act[j] * out[j];
	}
	y = squash(y);
	double error = y * (1 - y) * (target - y);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < hidden; j++)
			want[i * hidden + j] = w[i * hidden + j] + rate * error * out[j] * act[j] * (1 - act[j]) * in[i] + momentum * old[i * hidden + j];

	cl_open();
	cl_program p = cl_compile(
		"kernel void forward(global const float *in, global const float *w, global float *part) {"
		"	local float sum[16][16];"
		"	int j = get_local_id(0), i = get_local_id(1), at = get_global_id(1);"
		"	sum[i][j] = in[at] * w[at * 16 + j];"
		"	for (int k = 8; k > 0; k /= 2) {"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		if (i < k) sum[i][j] += sum[i + k][j];"
		"	}"
		"	if (i == 0) part[get_group_id(1) * 16 + j] = sum[0][j];"
		"}"
		"kernel void squash(global const float *part, global float *act, int groups) {"
		"	int j = get_local_id(0);"
		"	float sum = 0;"
		"	for (int g = 0; g < groups; g++) sum += part[g * 16 + j];"
		"	act[j] = 1 / (1 + exp(-sum));"
		"}"
		"kernel void adjust(global float *w, global float *old, global const float *in, constant float *delta, float rate, float momentum) {"
		"	int j = get_local_id(0), i = get_global_id(1);"
		"	float change = rate * delta[j] * in[i] + momentum * old[i * 16 + j];"
		"	w[i * 16 + j] += change;"
		"	old[i * 16 + j] = change;"
		"}");
	cl_kernel forward = cl_kernel_of(p, "forward"), squashed = cl_kernel_of(p, "squash"), adjust = cl_kernel_of(p, "adjust");
	cl_mem ins = cl_buffer(sizeof(float) * n, in), ws = cl_buffer(sizeof(float) * cells, w), olds = cl_buffer(sizeof(float) * cells, old);
	cl_mem sums = cl_buffer(sizeof(float) * groups * hidden, NULL), acts = cl_buffer(sizeof(float) * hidden, NULL);
	cl_mem deltas = cl_buffer(sizeof(float) * hidden, NULL);
	ARG(forward, 0, ins);
	ARG(forward, 1, ws);
	ARG(forward, 2, sums);
	ARG(squashed, 0, sums);
	ARG(squashed, 1, acts);
	ARG(squashed, 2, groups);
	ARG(adjust, 0, ws);
	ARG(adjust, 1, olds);
	ARG(adjust, 2, ins);
	ARG(adjust, 3, deltas);
	ARG(adjust, 4, rate);
	ARG(adjust, 5, momentum);
	size_t all[] = {hidden, n}, local[] = {hidden, 16};
	float activity[hidden], delta[hidden];
	while (cl_round()) {
		cl_run(forward, 2, all, local);
		cl_run(squashed, 1, all, local);
		cl_read(acts, sizeof activity, activity);
		y = 0;
		for (int j = 0; j < hidden; j++)
			y += activity[j] * out[j];
		y = squash(y);
		for (int j = 0; j < hidden; j++)
			delta[j] = y * (1 - y) * (target - y) * out[j] * activity[j] * (1 - activity[j]);
		cl_write(deltas, sizeof delta, delta);
		cl_run(adjust, 2, all, local);
	}
	cl_near("backprop, hidden layer", activity, act, hidden, 1e-3, 16);
	cl_read(ws, sizeof(float) * cells, w);
	double off = cl_near("backprop", w, want, cells, 1e-3, 16);
	cl_right("backprop", "%d inputs, weights within %.1f of 16 ulps", n, off);
}
