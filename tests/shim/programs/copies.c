// Copies of all kinds, and no kernel: whole buffers, parts, rectangles, and through a mapping.
#include "cl.h"

enum { n = 4096, width = 64 };

int main(void)
{
	unsigned char a[n], b[n], want[n];
	for (int i = 0; i < n; i++) {
		a[i] = i * 7 ^ i >> 6;
		b[i] = i * 13 + 5;
	}
	cl_open();
	cl_mem am = cl_buffer(n, a), bm = cl_buffer(n, NULL);
	CHECK(clEnqueueWriteBuffer(queue, bm, CL_FALSE, 0, n, b, 0, NULL, NULL));
	memcpy(want, b, n);

	CHECK(clEnqueueCopyBuffer(queue, am, bm, 100, 301, 1001, 0, NULL, NULL));
	memcpy(want + 301, a + 100, 1001);

	// 24 bytes of 9 lines
	CHECK(clEnqueueCopyBufferRect(queue, am, bm, (size_t[]){3, 5, 0}, (size_t[]){17, 40, 0}, (size_t[]){24, 9, 1},
		width, 0, width, 0, 0, NULL, NULL));
	for (int y = 0; y < 9; y++)
		memcpy(want + (40 + y) * width + 17, a + (5 + y) * width + 3, 24);

	cl_int err;
	unsigned char *at = clEnqueueMapBuffer(queue, bm, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 2000, 64, 0, NULL, NULL, &err);
	CHECK(err);
	cl_same("mapped", at, want + 2000, 64);
	for (int i = 0; i < 64; i++)
		at[i] = want[2000 + i] = i;
	CHECK(clEnqueueUnmapMemObject(queue, bm, at, 0, NULL, NULL));

	cl_read(bm, n, b);
	cl_same("copies", b, want, n);
}
