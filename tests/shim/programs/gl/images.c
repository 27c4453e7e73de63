// images stores to images of all formats, loads what it stored, and does atomic operations on
// them. It prints what a compute shader gets: a line of four numbers for each texel. Two devices
// should print the same. It takes the number of cases, and a seed.

#include "gl.h"

void glBindImageTexture(GLuint, GLuint, GLint, unsigned char, GLint, GLenum, GLenum);
void glTexStorage1D(GLenum, GLsizei, GLenum, GLsizei), glTexStorage2D(GLenum, GLsizei, GLenum, GLsizei, GLsizei);
void glTexStorage3D(GLenum, GLsizei, GLenum, GLsizei, GLsizei, GLsizei);

static const struct {
	GLenum internal;
	const char *name;
	char kind; // 'f', 'i' or 'u'
	int bytes;
} formats[] = {
	{0x8814, "rgba32f", 'f', 16}, {0x881a, "rgba16f", 'f', 8}, {0x8230, "rg32f", 'f', 8}, {0x822f, "rg16f", 'f', 4},
	{0x8c3a, "r11f_g11f_b10f", 'f', 4}, {0x822e, "r32f", 'f', 4}, {0x822d, "r16f", 'f', 2},
	{0x805b, "rgba16", 'f', 8}, {0x8059, "rgb10_a2", 'f', 4}, {0x8058, "rgba8", 'f', 4}, {0x822c, "rg16", 'f', 4},
	{0x822b, "rg8", 'f', 2}, {0x822a, "r16", 'f', 2}, {0x8229, "r8", 'f', 1},
	{0x8f9b, "rgba16_snorm", 'f', 8}, {0x8f97, "rgba8_snorm", 'f', 4}, {0x8f99, "rg16_snorm", 'f', 4},
	{0x8f95, "rg8_snorm", 'f', 2}, {0x8f98, "r16_snorm", 'f', 2}, {0x8f94, "r8_snorm", 'f', 1},
	{0x8d82, "rgba32i", 'i', 16}, {0x8d88, "rgba16i", 'i', 8}, {0x8d8e, "rgba8i", 'i', 4}, {0x823b, "rg32i", 'i', 8},
	{0x8239, "rg16i", 'i', 4}, {0x8237, "rg8i", 'i', 2}, {0x8235, "r32i", 'i', 4}, {0x8233, "r16i", 'i', 2}, {0x8231, "r8i", 'i', 1},
	{0x8d70, "rgba32ui", 'u', 16}, {0x8d76, "rgba16ui", 'u', 8}, {0x906f, "rgb10_a2ui", 'u', 4}, {0x8d7c, "rgba8ui", 'u', 4},
	{0x823c, "rg32ui", 'u', 8}, {0x823a, "rg16ui", 'u', 4}, {0x8238, "rg8ui", 'u', 2}, {0x8236, "r32ui", 'u', 4},
	{0x8234, "r16ui", 'u', 2}, {0x8232, "r8ui", 'u', 1},
};

static const struct {
	GLenum target;
	const char *name, *at, *size; // of a texel with the number n
	int dims, layers;
} targets[] = {
	{0x0de0, "1D", "int(n%w)", "ivec3(imageSize(t),0,0)", 1, 1},
	{0x0de1, "2D", "ivec2(n%w,n/w%h)", "ivec3(imageSize(t),0)", 2, 1},
	{0x8513, "Cube", "ivec3(n%w,n/w%h,n/(w*h)%6)", "ivec3(imageSize(t),0)", 2, 6},
	{0x8c18, "1DArray", "ivec2(n%w,n/w%3)", "ivec3(imageSize(t),0)", 1, 3},
	{0x8c1a, "2DArray", "ivec3(n%w,n/w%h,n/(w*h)%3)", "imageSize(t)", 2, 3},
	{0x84f5, "2DRect", "ivec2(n%w,n/w%h)", "ivec3(imageSize(t),0)", 2, 1},
	{0x8c2a, "Buffer", "int(n%w)", "ivec3(imageSize(t),0,0)", 1, 1},
};

static int dispatch(const char *head, const char *body, int threads)
{
	char source[4096];
	snprintf(source, sizeof source, "#version 430\nlayout(local_size_x=%d) in;\n%s\nvoid main() { uint n = gl_LocalInvocationID.x; %s }\n", threads, head, body);
	GLuint program = compile(source);
	if (!program)
		return 1;
	glUseProgram(program);
	glDispatchCompute(1, 1, 1);
	glMemoryBarrier(~0u);
	glDeleteProgram(program);
	return 0;
}

static int run(int number)
{
	unsigned t = rnd(sizeof targets / sizeof *targets), f;
	do // buffers have fewer formats
		f = rnd(sizeof formats / sizeof *formats);
	while (targets[t].target == 0x8c2a && (strstr(formats[f].name, "snorm") || strchr(formats[f].name, '_')));
	GLenum target = targets[t].target;
	unsigned w = 1 + rnd(20), h = targets[t].dims < 2 ? 1 : 1 + rnd(10), layers = targets[t].layers, level = 0, levels = 1;
	if (layers == 6)
		h = w = 1 + rnd(8);
	if (target != 0x84f5 && target != 0x8c2a && rnd(2))
		levels = 1 + (level = 1);
	GLuint texture, buffer = 0;
	glGenTextures(1, &texture);
	glBindTexture(target, texture);
	if (target == 0x8c2a) {
		glGenBuffers(1, &buffer);
		glBindBuffer(0x8c2a, buffer);
		glBufferData(0x8c2a, w * formats[f].bytes, 0, 0x88e4);
		glTexBuffer(target, formats[f].internal, buffer);
	} else if (target == 0x0de0)
		glTexStorage1D(target, levels, formats[f].internal, w << level);
	else if (target == 0x8c18)
		glTexStorage2D(target, levels, formats[f].internal, w << level, layers);
	else if (target == 0x8c1a)
		glTexStorage3D(target, levels, formats[f].internal, w << level, h << level, layers);
	else
		glTexStorage2D(target, levels, formats[f].internal, w << level, h << level);
	glBindImageTexture(0, texture, level, 1, 0, 0x88ba, formats[f].internal);
	printf("case %d: %s %s %dx%d, level %d\n", number, targets[t].name, formats[f].name, w, h, level);
	fflush(stdout);
	enum { most = 128 };
	int n = w * h * layers < most ? w * h * layers : most;
	float in[most][4];
	for (int i = 0; i < n; i++)
		for (int c = 0; c < 4; c++) // floats of few bits, where rounding is not defined, floats that a format of few bits has not, and integers beyond its bounds
			in[i][c] = formats[f].internal == 0x8c3a ? rnd(64) / 16.f - 2 : formats[f].kind == 'f' ? (rnd(2) ? between(-2, 2) : between(0, 1)) : formats[f].kind == 'i' ? between(-300, 300) : between(0, 300);
	GLuint ssbo[2];
	glGenBuffers(2, ssbo);
	glBindBufferBase(0x90d2, 0, ssbo[0]);
	glBufferData(0x90d2, sizeof in, in, 0x88e4);
	glBindBufferBase(0x90d2, 1, ssbo[1]);
	glBufferData(0x90d2, (most + 1) * 16, 0, 0x88e4);
	char head[1024], body[1024];
	const char *kind = formats[f].kind == 'f' ? "" : formats[f].kind == 'i' ? "i" : "u";
	snprintf(head, sizeof head,
		"layout(std430,binding=0) buffer In { vec4 values[]; };\nlayout(std430,binding=1) buffer Out { vec4 results[]; };\n"
		"layout(binding=0,%s) uniform %simage%s t; const uint w=%d, h=%d;\n#define at %s\n",
		formats[f].name, kind, targets[t].name, w, h, targets[t].at);
	snprintf(body, sizeof body, "imageStore(t, at, %svec4(values[n])); imageStore(t, at - %d, %svec4(9));", kind, 1000, kind);
	if (dispatch(head, body, n))
		return 1;
	if (formats[f].bytes == 4 && (!strcmp(formats[f].name, "r32i") || !strcmp(formats[f].name, "r32ui"))) {
		static const char *ops[] = {
			"imageAtomicAdd(t, at, %s(7))", "imageAtomicMin(t, at, %s(100))", "imageAtomicMax(t, at, %s(100))", "imageAtomicAnd(t, at, %s(0x55))",
			"imageAtomicOr(t, at, %s(0x50))", "imageAtomicXor(t, at, %s(0x3f))", "imageAtomicExchange(t, at, %s(5))", "imageAtomicCompSwap(t, at, %s(values[n].x), %s(11))",
		};
		char op[256];
		const char *type = formats[f].kind == 'i' ? "int" : "uint";
		snprintf(op, sizeof op, ops[rnd(8)], type, type);
		snprintf(body, sizeof body, "results[n] = vec4(%s);", op);
		if (dispatch(head, body, n))
			return 1;
		float out[most][4];
		glGetBufferSubData(0x90d2, 0, sizeof out, out);
		printf("%s\n", op);
		for (int i = 0; i < n; i++)
			printf("%g 0 0 0\n", out[i][0]);
	}
	snprintf(body, sizeof body, "results[n] = vec4(imageLoad(t, at)); if (n == 0u) results[%d] = vec4(%s, imageLoad(t, at + 1000).x);", most, targets[t].size);
	if (dispatch(head, body, n))
		return 1;
	float out[most + 1][4];
	glGetBufferSubData(0x90d2, 0, sizeof out, out);
	for (int i = 0; i <= n; i++)
		printf("%g %g %g %g\n", out[i < n ? i : most][0], out[i < n ? i : most][1], out[i < n ? i : most][2], out[i < n ? i : most][3]);
	glDeleteTextures(1, &texture);
	glDeleteBuffers(2, ssbo);
	if (buffer)
		glDeleteBuffers(1, &buffer);
	return failed();
}
