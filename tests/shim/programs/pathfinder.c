// Cheapest way down through a grid of costs, one step left, down or right in each row. A launch does
// several rows in local memory; its tiles overlap by as many columns at each side.
#include "cl.h"

enum { tile = 128, rows_at_once = 4 };

int main(int argc, char **argv)
{
	int width = cl_size(argc, argv, 1, 256, 1), rows = cl_size(argc, argv, 2, 9, 1);
	int *cost = malloc(sizeof(int) * width * rows), *want = malloc(sizeof(int) * width), *next = malloc(sizeof(int) * width);
	for (int i = 0; i < width * rows; i++)
		cost[i] = cl_random() % 10;
	memcpy(want, cost, sizeof(int) * width);
	for (int y = 1; y < rows; y++) {
		for (int x = 0; x < width; x++) {
			int best = want[x];
			if (x > 0 && want[x - 1] < best)
				best = want[x - 1];
			if (x < width - 1 && want[x + 1] < best)
				best = want[x + 1];
			next[x] = best + cost[y * width + x];
		}
		memcpy(want, next, sizeof(int) * width);
	}

	cl_open();
	cl_kernel k = cl_build(
		"kernel void rows(global const int *cost, global const int *from, global int *to, int width, int first, int count) {"
		"	local int sum[2][128];"
		"	int me = get_local_id(0), x = (int)get_group_id(0) * (128 - 2 * count) + me - count;"
		"	int at = clamp(x, 0, width - 1), now = 0;"
		"	sum[0][me] = from[at];"
		"	for (int i = 0; i < count; i++) {"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		if (me > i && me < 127 - i) {"
		"			int best = sum[now][me];"
		"			if (x > 0) best = min(best, sum[now][me - 1]);"
		"			if (x < width - 1) best = min(best, sum[now][me + 1]);"
		"			sum[!now][me] = best + cost[(first + i) * width + at];"
		"		}"
		"		now = !now;"
		"	}"
		"	if (me >= count && me < 128 - count && x < width) to[x] = sum[now][me];"
		"}", "rows");
	cl_mem costs = cl_buffer(sizeof(int) * width * rows, cost), sides[] = {cl_buffer(sizeof(int) * width, cost), cl_buffer(sizeof(int) * width, NULL)};
	int launches;
	while (cl_round()) {
		launches = 0;
		for (int y = 1; y < rows; y += rows_at_once) {
			int count = rows - y < rows_at_once ? rows - y : rows_at_once, inner = tile - 2 * count;
			ARG(k, 0, costs);
			ARG(k, 1, sides[launches % 2]);
			ARG(k, 2, sides[++launches % 2]);
			ARG(k, 3, width);
			ARG(k, 4, y);
			ARG(k, 5, count);
			cl_run(k, 1, (size_t[]){(size_t)(width + inner - 1) / inner * tile}, (size_t[]){tile});
		}
	}
	cl_read(sides[launches % 2], sizeof(int) * width, next);
	cl_equal("pathfinder", next, want, sizeof(int) * width);
	cl_right("pathfinder", "%d columns, %d rows equal", width, rows);
}
