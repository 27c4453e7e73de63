// Alignment of two sequences after Needleman and Wunsch: tiles along each diagonal of the matrix, and
// in a tile its diagonals, with barriers.
#include "cl.h"

enum { tile = 16, gap = 10 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 48, tile), side = n + 1;
	int *match = malloc(sizeof(int) * n * n), *want = calloc(side * side, sizeof(int)), *got = calloc(side * side, sizeof(int));
	char *a = malloc(n), *b = malloc(n);
	for (int i = 0; i < n; i++) {
		a[i] = cl_random() % 4;
		b[i] = cl_random() % 4;
	}
	for (int y = 0; y < n; y++)
		for (int x = 0; x < n; x++)
			match[y * n + x] = a[y] == b[x] ? 5 : -3 - (a[y] ^ b[x]);
	for (int i = 0; i < side; i++)
		want[i] = want[i * side] = got[i] = got[i * side] = -gap * i;
	for (int y = 1; y < side; y++)
		for (int x = 1; x < side; x++) {
			int v = want[(y - 1) * side + x - 1] + match[(y - 1) * n + x - 1];
			int up = want[(y - 1) * side + x] - gap, left = want[y * side + x - 1] - gap;
			v = up > v ? up : v;
			want[y * side + x] = left > v ? left : v;
		}

	cl_open();
	cl_kernel k = cl_build(
		"kernel void diagonal(global int *score, global const int *match, int n, int first, int sum, int gap) {"
		"	local int s[17][17];"
		"	int me = get_local_id(0), side = n + 1, ty = first + get_group_id(0), tx = sum - ty;"
		"	global int *corner = score + ty * 16 * side + tx * 16;"
		"	s[me + 1][0] = corner[(me + 1) * side];"
		"	s[0][me + 1] = corner[me + 1];"
		"	if (me == 0) s[0][0] = corner[0];"
		"	for (int d = 0; d < 31; d++) {"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		int y = me, x = d - me;"
		"		if (x >= 0 && x < 16)"
		"			s[y + 1][x + 1] = max(s[y][x] + match[(ty * 16 + y) * n + tx * 16 + x], max(s[y][x + 1], s[y + 1][x]) - gap);"
		"	}"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int y = 1; y <= 16; y++)"
		"		corner[y * side + me + 1] = s[y][me + 1];"
		"}", "diagonal");
	size_t size = sizeof(int) * side * side;
	cl_mem scores = cl_buffer(size, got), matches = cl_buffer(sizeof(int) * n * n, match);
	int tiles = n / tile, penalty = gap;
	ARG(k, 0, scores);
	ARG(k, 1, matches);
	ARG(k, 2, n);
	ARG(k, 5, penalty);
	while (cl_round()) {
		for (int sum = 0; sum < 2 * tiles - 1; sum++) {
			int first = sum < tiles ? 0 : sum - tiles + 1, last = sum < tiles ? sum : tiles - 1;
			ARG(k, 3, first);
			ARG(k, 4, sum);
			cl_run(k, 1, (size_t[]){(size_t)(last - first + 1) * tile}, (size_t[]){tile});
		}
	}
	cl_read(scores, size, got);
	cl_equal("nw", got, want, size);
	cl_right("nw", "score %d of two sequences of %d equal", got[side * side - 1], n);
}
