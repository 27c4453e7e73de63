package engine

// Methods of the report semaphore, alike in 9097 and 90c0, as places in
// GR.Values.
const (
	reportA = 0x1b00 / 4
	reportB = 0x1b04 / 4
	reportC = 0x1b08 / 4
)

// Fields of SET_REPORT_SEMAPHORE_D.
const (
	reportOperation = 3
	reportRelease   = 0
	reportAcquire   = 1
	reportOnly      = 2
	reportTrap      = 3

	reportGE      = 1 << 16
	reportAwaken  = 1 << 20
	reportDword1  = 1 << 21
	reportOneWord = 1 << 28
)

// wideReports has a bit for each REPORT whose value is 64 bits, in the place of
// the payload. The others are {payload, 32-bit value}. (Mesa's
// nvc0_query_hw.c reads them so.)
const wideReports = 1<<0x01 | 1<<0x03 | 1<<0x05 | 1<<0x06 | 1<<0x07 | 1<<0x09 | 1<<0x0b | 1<<0x0d | 1<<0x0f |
	1<<0x11 | 1<<0x12 | 1<<0x13 | 1<<0x15 | 1<<0x1b | 1<<0x1d | 1<<0x1e | 1<<0x1f

// validRelease: compute declares the operations RELEASE and TRAP only.
func validRelease(data uint32) bool {
	op := data & reportOperation
	return op == reportRelease || op == reportTrap
}

// reportSemaphore releases, acquires or reports. Nothing is drawn, so every
// counter that can be reported is zero.
func reportSemaphore(g *GR, env *Env, c call) Outcome {
	v := &g.Values[c.class.place]
	va, payload := address(v[reportA], v[reportB]), v[reportC]
	g.Op = c.class.op(OpRelease)
	if c.data&reportAwaken != 0 {
		g.Op.Events = 1 << EventAwaken
	}
	alone := c.data&reportOneWord != 0
	switch c.data & reportOperation {
	case reportRelease:
		g.Op.Release = newRelease(va, alone, payload)
	case reportAcquire:
		g.Op.Kind, g.Op.AcquireGE = OpAcquire, c.data&reportGE != 0
		g.Op.Release = newRelease(va, true, payload)
	case reportOnly:
		if wideReports>>(c.data>>23&0x1f)&1 != 0 || alone && c.data&reportDword1 != 0 {
			payload = 0
		}
		g.Op.Release = newRelease(va, alone, payload)
	case reportTrap:
		g.Op.Events |= 1 << EventTrap
	}
	return g.work(env)
}
