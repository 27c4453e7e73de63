// textures samples textures of all targets, in many formats and with many samplers, at random
// places, and prints what a compute shader gets: a line of four numbers for each sample. Two
// devices should print about the same. It takes the number of cases, and a seed.

#include "gl.h"

static const struct {
	GLenum target;
	const char *name, *sample, *offset, *fetch, *gather, *grad, *size;
	int dims, layers; // dims: coordinates that are filtered; layers: 6 for cubes
	int mipmaps;
} targets[] = {
	{0x0de0, "1D", "textureLod(t,c.x,l)", "textureLodOffset(t,c.x,l,3)", "texelFetch(t,i.x,i.w)", 0, "textureGrad(t,c.x,d.x,d.y)", "vec4(textureSize(t,i.w),0,0,textureQueryLevels(t))", 1, 1, 1},
	{0x0de1, "2D", "textureLod(t,c.xy,l)", "textureLodOffset(t,c.xy,l,ivec2(-3,2))", "texelFetch(t,i.xy,i.w)", "textureGather(t,c.xy,2)", "textureGrad(t,c.xy,d.xy,d.zw)", "vec4(textureSize(t,i.w),0,textureQueryLevels(t))", 2, 1, 1},
	{0x806f, "3D", "textureLod(t,c.xyz,l)", "textureLodOffset(t,c.xyz,l,ivec3(1,-2,3))", "texelFetch(t,i.xyz,i.w)", 0, "textureGrad(t,c.xyz,d.xyz,d.zyx)", "vec4(textureSize(t,i.w),textureQueryLevels(t))", 3, 1, 1},
	{0x8513, "Cube", "textureLod(t,c.xyz,l)", 0, 0, "textureGather(t,c.xyz,1)", 0, "vec4(textureSize(t,i.w),0,textureQueryLevels(t))", 2, 6, 1},
	{0x8c18, "1DArray", "textureLod(t,c.xz,l)", "textureLodOffset(t,c.xz,l,-5)", "texelFetch(t,i.xz,i.w)", 0, "textureGrad(t,c.xz,d.x,d.y)", "vec4(textureSize(t,i.w),0,textureQueryLevels(t))", 1, 3, 1},
	{0x8c1a, "2DArray", "textureLod(t,c.xyz,l)", "textureLodOffset(t,c.xyz,l,ivec2(7,-8))", "texelFetch(t,i.xyz,i.w)", "textureGather(t,c.xyz,0)", "textureGrad(t,c.xyz,d.xy,d.zw)", "vec4(textureSize(t,i.w),textureQueryLevels(t))", 2, 3, 1},
	{0x9009, "CubeArray", "textureLod(t,c.xyzw,l)", 0, 0, "textureGather(t,c,3)", 0, "vec4(textureSize(t,i.w),textureQueryLevels(t))", 2, 12, 1},
	{0x84f5, "2DRect", "texture(t,c.xy*9.)", "textureOffset(t,c.xy*9.,ivec2(2,2))", "texelFetch(t,i.xy)", "textureGather(t,c.xy*9.,0)", 0, "vec4(textureSize(t),0,0)", 2, 1, 0},
	{0x8c2a, "Buffer", 0, 0, "texelFetch(t,i.x)", 0, 0, "vec4(textureSize(t),0,0,0)", 1, 1, 0},
};

enum { UBYTE = 0x1401, BYTE = 0x1400, USHORT = 0x1403, SHORT = 0x1402, FLOAT = 0x1406, HALF = 0x140b };
// The formats as they are in memory, so that Mesa does not draw to convert them.
static const struct {
	GLint internal;
	GLenum format, type;
	int bytes;     // of a texel
	char kind;     // of a sampler: 'f', 'i', 'u', or 's' for shadow
	int buffer;    // may be a buffer's
	uint32_t mask; // of the random bits of each four bytes: no infinities. 1 is for floats
} formats[] = {
	{0x8058, 0x1908, UBYTE, 4, 'f', 1, ~0u},        // RGBA8
	{0x8c43, 0x1908, UBYTE, 4, 'f', 0, ~0u},        // SRGB8_ALPHA8
	{0x8229, 0x1903, UBYTE, 1, 'f', 1, ~0u},        // R8
	{0x822b, 0x8227, UBYTE, 2, 'f', 1, ~0u},        // RG8
	{0x8f97, 0x1908, BYTE, 4, 'f', 0, ~0u},         // RGBA8_SNORM
	{0x805b, 0x1908, USHORT, 8, 'f', 1, ~0u},       // RGBA16
	{0x8f98, 0x1903, SHORT, 2, 'f', 0, ~0u},        // R16_SNORM
	{0x8814, 0x1908, FLOAT, 16, 'f', 1, 1},         // RGBA32F
	{0x822e, 0x1903, FLOAT, 4, 'f', 1, 1},          // R32F
	{0x881a, 0x1908, HALF, 8, 'f', 1, 0xbbffbbff},  // RGBA16F
	{0x8c3a, 0x1907, 0x8c3b, 4, 'f', 0, 0x7fdffbff}, // R11F_G11F_B10F
	{0x8c3d, 0x1907, 0x8c3e, 4, 'f', 0, 0x7fffffff}, // RGB9_E5
	{0x8059, 0x1908, 0x8368, 4, 'f', 0, ~0u},       // RGB10_A2
	{0x8d62, 0x1907, 0x8363, 2, 'f', 0, ~0u},       // RGB565
	{0x8057, 0x80e1, 0x8366, 2, 'f', 0, ~0u},       // RGB5_A1
	{0x8d7c, 0x8d99, UBYTE, 4, 'u', 1, ~0u},        // RGBA8UI
	{0x8d8e, 0x8d99, BYTE, 4, 'i', 1, ~0u},         // RGBA8I
	{0x8d76, 0x8d99, USHORT, 8, 'u', 1, ~0u},       // RGBA16UI
	{0x8239, 0x8228, SHORT, 4, 'i', 0, ~0u},        // RG16I
	{0x906f, 0x8d99, 0x8368, 4, 'u', 0, ~0u},       // RGB10_A2UI
	{0x81a5, 0x1902, USHORT, 2, 'f', 0, ~0u},       // DEPTH_COMPONENT16
	{0x81a5, 0x1902, USHORT, 2, 's', 0, ~0u},
	{0x8cac, 0x1902, FLOAT, 4, 's', 0, 1},          // DEPTH_COMPONENT32F
};

enum { samples = 24, wrap_s = 0x2802, min_filter = 0x2801, mag_filter = 0x2800 };

static int run(int number)
{
	unsigned t, f;
	int shadow;
	do {
		t = rnd(sizeof targets / sizeof *targets), f = rnd(sizeof formats / sizeof *formats);
		shadow = formats[f].kind == 's';
	} while ((targets[t].target == 0x8c2a && !formats[f].buffer) || (formats[f].format == 0x1902 && targets[t].dims == 3) ||
		 (shadow && targets[t].layers > 3));
	GLenum target = targets[t].target;
	int size[3] = {1 + rnd(40), 1 + rnd(40), 1 + rnd(10)};
	int is_cube = targets[t].layers % 6 == 0, is_rect = target == 0x84f5, is_buffer = target == 0x8c2a;
	if (is_cube)
		size[1] = size[0];
	if (targets[t].dims < 2)
		size[1] = 1;
	if (targets[t].dims < 3)
		size[2] = 1;
	int levels = 1;
	for (int i = 0; i < 3 && targets[t].mipmaps; i++)
		while (size[i] >> levels)
			levels++;

	GLuint texture, buffer = 0;
	glGenTextures(1, &texture);
	glActiveTexture(0x84c0);
	glBindTexture(target, texture);
	glPixelStorei(0x0cf5, 1);
	static unsigned char data[40 * 40 * 16 * 12 + 4];
	for (int level = 0; level < levels; level++) {
		int w = size[0] >> level ? size[0] >> level : 1, h = size[1] >> level ? size[1] >> level : 1, d = size[2] >> level ? size[2] >> level : 1;
		int layers = targets[t].layers, bytes = w * h * d * layers * formats[f].bytes;
		for (int i = 0; i < bytes; i += 4) {
			uint32_t v = (rnd(1 << 16) << 16 | rnd(1 << 16)) & formats[f].mask;
			float x = between(0, 1);
			memcpy(data + i, formats[f].mask == 1 ? (void *)&x : &v, 4);
		}
		if (is_buffer) {
			glGenBuffers(1, &buffer);
			glBindBuffer(0x8c2a, buffer);
			glBufferData(0x8c2a, 4096 + w, data, 0x88e4);
			glTexBuffer(target, formats[f].internal, buffer);
		} else if (target == 0x0de0)
			glTexImage1D(target, level, formats[f].internal, w, 0, formats[f].format, formats[f].type, data);
		else if (target == 0x8c18)
			glTexImage2D(target, level, formats[f].internal, w, layers, 0, formats[f].format, formats[f].type, data);
		else if (target == 0x8513)
			for (int i = 0; i < 6; i++)
				glTexImage2D(0x8515 + i, level, formats[f].internal, w, h, 0, formats[f].format, formats[f].type, data + i * w * h * formats[f].bytes);
		else if (target == 0x0de1 || is_rect)
			glTexImage2D(target, level, formats[f].internal, w, h, 0, formats[f].format, formats[f].type, data);
		else
			glTexImage3D(target, level, formats[f].internal, w, h, d * layers, 0, formats[f].format, formats[f].type, data);
	}
	int linear = rnd(2), integer = formats[f].kind == 'i' || formats[f].kind == 'u';
	if (integer)
		linear = 0;
	static const int wraps[] = {0x2901, 0x8370, 0x812f, 0x812d};
	int base = targets[t].mipmaps ? rnd(levels < 3 ? 1 : 3) : 0;
	if (!is_buffer) {
		for (int i = 0; i < 3; i++)
			glTexParameteri(target, i < 2 ? wrap_s + i : 0x8072, wraps[is_rect ? 2 + rnd(2) : rnd(4)]);
		int mip = rnd(3);
		glTexParameteri(target, min_filter, !targets[t].mipmaps || !mip ? 0x2600 + linear : 0x2700 + linear + (mip == 2 && !integer ? 2 : 0));
		glTexParameteri(target, mag_filter, 0x2600 + linear);
		float border[4] = {.25, .5, .75, 1};
		static const int border_integers[4] = {5, 6, 7, 2};
		if (integer)
			glTexParameterIiv(target, 0x1004, border_integers);
		else
			glTexParameterfv(target, 0x1004, border);
		if (targets[t].mipmaps) {
			glTexParameteri(target, 0x813c, base);
			glTexParameterf(target, 0x8501, .375);
		}
		if (shadow) {
			glTexParameteri(target, 0x884c, 0x884e);
			glTexParameteri(target, 0x884d, rnd(2) ? 0x0201 : 0x0206); // LESS, GEQUAL
		}
	}
	const char *ops[] = {targets[t].sample, targets[t].offset, targets[t].fetch, targets[t].gather, targets[t].grad, targets[t].size};
	static const char *shadows[] = {
		"vec4(textureLod(t,vec3(c.x,0,r),l))", "vec4(textureLod(t,vec3(c.xy,r),l))", 0, 0, "vec4(textureLod(t,vec3(c.xz,r),l))",
		"vec4(texture(t,vec4(c.xyz,r)))", 0, "vec4(texture(t,vec3(c.xy*9.,r)))", 0,
	};
	int op;
	if (shadow) {
		op = rnd(2) ? 0 : 5;
		ops[0] = shadows[t];
	} else
		op = rnd(6);
	while (!ops[op] || (op == 3 && is_cube) || (op == 4 && integer))
		op = (op + 1) % 6;
	printf("case %d: %s %c%x %dx%dx%d, %d levels, %s, linear %d\n", number, targets[t].name, formats[f].kind, formats[f].internal, size[0], size[1], size[2], levels, ops[op], linear);
	fflush(stdout);
	char source[4096];
	snprintf(source, sizeof source,
		"#version 430\nlayout(local_size_x=%d) in;\n"
		"layout(std430,binding=0) buffer In { vec4 coords[]; };\nlayout(std430,binding=1) buffer Out { vec4 results[]; };\n"
		"layout(binding=0) uniform %ssampler%s%s t;\n"
		"void main() { uint n = gl_LocalInvocationID.x; vec4 c = coords[4*n]; vec4 d = coords[4*n+1]; ivec4 i = ivec4(coords[4*n+2]);\n"
		"float l = coords[4*n+3].x; float r = coords[4*n+3].y; results[n] = vec4(%s); }\n",
		samples, integer ? (formats[f].kind == 'i' ? "i" : "u") : "", targets[t].name, shadow ? "Shadow" : "", ops[op]);
	GLuint program = compile(source);
	if (!program)
		return 1;
	float in[samples][4][4];
	int level = 0;
	for (int n = 0; n < samples; n++) {
		for (int i = 0; i < 4; i++) {
			in[n][0][i] = between(-1.5, 2.5);
			in[n][1][i] = 0;
		}
		// One derivative is a power of two, in texels: Mesa's renderer knows the logarithms of those only.
		int by = targets[t].dims == 3 ? 1 : rnd(targets[t].dims * 2), dim = targets[t].dims == 1 ? 0 : by % 2;
		in[n][1][by] = (float)(1 << rnd(6)) / (size[dim] >> base ? size[dim] >> base : 1);
		if (n == 0 || op != 5) // Mesa's renderer asks for one level
			level = targets[t].mipmaps ? rnd(levels - base) : 0;
		if (targets[t].layers == 3)
			in[n][0][2] = rnd(3);
		in[n][0][3] = rnd(2);
		for (int i = 0; i < 3; i++) {
			int s = size[i] >> (level + base);
			in[n][2][i] = rnd(s ? s : 1);
		}
		if (targets[t].layers == 3)
			in[n][2][2] = rnd(3);
		if (is_buffer)
			in[n][2][0] = rnd(200);
		in[n][2][3] = level;
		in[n][3][0] = rnd(7 * 256) / 256.f - 1; // as exact as a card knows levels
		in[n][3][1] = between(0, 1);
	}
	GLuint ssbo[2];
	glGenBuffers(2, ssbo);
	glBindBufferBase(0x90d2, 0, ssbo[0]);
	glBufferData(0x90d2, sizeof in, in, 0x88e4);
	glBindBufferBase(0x90d2, 1, ssbo[1]);
	glBufferData(0x90d2, samples * 16, 0, 0x88e4);
	glUseProgram(program);
	if (number % 2) {
		static const GLuint groups[] = {9, 1, 1, 1};
		GLuint indirect;
		glGenBuffers(1, &indirect);
		glBindBuffer(0x90ee, indirect);
		glBufferData(0x90ee, sizeof groups, groups, 0x88e4);
		glDispatchComputeIndirect(4);
		glDeleteBuffers(1, &indirect);
	} else
		glDispatchCompute(1, 1, 1);
	glMemoryBarrier(~0u);
	float out[samples][4];
	glGetBufferSubData(0x90d2, 0, sizeof out, out);
	for (int n = 0; n < samples; n++)
		printf("%g %g %g %g\n", out[n][0], out[n][1], out[n][2], out[n][3]);
	glDeleteTextures(1, &texture);
	glDeleteBuffers(2, ssbo);
	if (buffer)
		glDeleteBuffers(1, &buffer);
	glDeleteProgram(program);
	return failed();
}
