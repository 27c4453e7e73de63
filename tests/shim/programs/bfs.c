// Distances in a graph, breadth first: one launch marks what the front reaches, another makes that the
// next front. The host asks whether there is one.
#include "cl.h"

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 256, 1), degree = 3, edges = n * degree;
	int *to = malloc(sizeof(int) * edges), *want = malloc(sizeof(int) * n), *got = malloc(sizeof(int) * n), *list = malloc(sizeof(int) * n);
	for (int i = 0; i < edges; i++)
		to[i] = cl_random() % n;
	for (int i = 0; i < n; i++)
		want[i] = got[i] = -1;
	int first = 0, last = 1;
	want[0] = got[0] = list[0] = 0;
	for (; first < last; first++)
		for (int e = 0; e < degree; e++) {
			int v = to[list[first] * degree + e];
			if (want[v] < 0) {
				want[v] = want[list[first]] + 1;
				list[last++] = v;
			}
		}
	char *front = calloc(n, 1);
	front[0] = 1;

	cl_open();
	cl_program p = cl_compile(
		"kernel void reach(global const int *to, global int *depth, global uchar *front, global uchar *reached, int n, int degree) {"
		"	int i = get_global_id(0);"
		"	if (i >= n || !front[i]) return;"
		"	front[i] = 0;"
		"	for (int e = 0; e < degree; e++) {"
		"		int v = to[i * degree + e];"
		"		if (depth[v] < 0) reached[v] = 1;"
		"	}"
		"}"
		"kernel void advance(global int *depth, global uchar *front, global uchar *reached, int n, int level, global int *more) {"
		"	int i = get_global_id(0);"
		"	if (i >= n || !reached[i]) return;"
		"	reached[i] = 0;"
		"	front[i] = 1;"
		"	depth[i] = level;"
		"	atomic_inc(more);"
		"}");
	cl_kernel reach = cl_kernel_of(p, "reach"), advance = cl_kernel_of(p, "advance");
	cl_mem tos = cl_buffer(sizeof(int) * edges, to), depths = cl_buffer(sizeof(int) * n, got), fronts = cl_buffer(n, front);
	front[0] = 0;
	cl_mem reached = cl_buffer(n, front), mores = cl_buffer(sizeof(int), front);
	ARG(reach, 0, tos);
	ARG(reach, 1, depths);
	ARG(reach, 2, fronts);
	ARG(reach, 3, reached);
	ARG(reach, 4, n);
	ARG(reach, 5, degree);
	ARG(advance, 0, depths);
	ARG(advance, 1, fronts);
	ARG(advance, 2, reached);
	ARG(advance, 3, n);
	ARG(advance, 5, mores);
	size_t all = (n + 63) / 64 * 64;
	int levels, was, more;
	while (cl_round()) {
		levels = more = 0;
		do {
			was = more;
			levels++;
			ARG(advance, 4, levels);
			cl_run(reach, 1, &all, (size_t[]){64});
			cl_run(advance, 1, &all, (size_t[]){64});
			cl_read(mores, sizeof more, &more);
		} while (more != was);
	}
	cl_read(depths, sizeof(int) * n, got);
	cl_equal("bfs", got, want, sizeof(int) * n);
	cl_right("bfs", "distances of %d nodes in %d levels equal", n, levels - 1);
}
