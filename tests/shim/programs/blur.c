// A picture is blurred: each thread samples nine texels of one image, and writes one of another. It is
// what textures and surfaces cost. Mesa's driver has no coordinates in texels: it takes them for normalized ones.
#include "cl.h"

int main(int argc, char **argv)
{
	size_t n = cl_size(argc, argv, 1, 64, 16) / 16 * 16, size = n * n * sizeof(float);
	float *in = malloc(size), *want = malloc(size), *got = calloc(1, size);
	for (size_t i = 0; i < n * n; i++)
		in[i] = cl_random() % 256;
	for (int y = 0; y < (int)n; y++)
		for (int x = 0; x < (int)n; x++) {
			float sum = 0;
			for (int dy = -1; dy <= 1; dy++)
				for (int dx = -1; dx <= 1; dx++) {
					int u = x + dx < 0 ? 0 : x + dx >= (int)n ? (int)n - 1 : x + dx, v = y + dy < 0 ? 0 : y + dy >= (int)n ? (int)n - 1 : y + dy;
					sum += in[v * n + u];
				}
			want[y * n + x] = sum;
		}
	cl_open();
	cl_kernel k = cl_build(
		"constant sampler_t nearest = CLK_NORMALIZED_COORDS_TRUE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;"
		"kernel void blur(read_only image2d_t in, write_only image2d_t out) {"
		"	int2 at = (int2)(get_global_id(0), get_global_id(1));"
		"	float2 texel = 1.f / (float2)(get_global_size(0), get_global_size(1));"
		"	float sum = 0;"
		"	for (int y = -1; y <= 1; y++)"
		"		for (int x = -1; x <= 1; x++)"
		"			sum += read_imagef(in, nearest, (convert_float2(at + (int2)(x, y)) + .5f) * texel).x;"
		"	write_imagef(out, at, (float4)(sum, 0, 0, 0));"
		"}", "blur");
	cl_int err;
	cl_image_format format = {CL_R, CL_FLOAT};
	cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = n, .image_height = n};
	cl_mem from = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, in, &err);
	CHECK(err);
	cl_mem to = clCreateImage(context, CL_MEM_WRITE_ONLY, &format, &desc, NULL, &err);
	CHECK(err);
	ARG(k, 0, from);
	ARG(k, 1, to);
	while (cl_round())
		cl_run(k, 2, (size_t[]){n, n}, (size_t[]){16, 16});
	CHECK(clEnqueueReadImage(queue, to, CL_TRUE, (size_t[]){0, 0, 0}, (size_t[]){n, n, 1}, 0, 0, got, 0, NULL, NULL));
	cl_equal("blur", got, want, size);
	cl_right("blur", "%d sums equal", (int)(n * n));
}
