package gpu

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Bench measures copies by an engine, and the CPU's accesses to the card. What the engine
// copied is verified after it was timed.
func (e *Env) Bench(a proto.BenchArgs) (res proto.BenchResult, err error) {
	eng, err := engineOf(a.Engine)
	if err != nil {
		return res, err
	}
	k, err := e.copier()
	if err != nil {
		return res, err
	}
	defer closeInto(k, &err)
	for _, r := range routes {
		c, err := k.bench(eng, r, a.Bytes, a.Rounds)
		if err != nil {
			return res, fmt.Errorf("%s, %s to %s, %d bytes: %w", eng, r[0], r[1], a.Bytes, err)
		}
		res.Copies = append(res.Copies, c)
	}
	if err := k.benchBAR(a.Registers, &res); err != nil {
		return res, err
	}
	return res, e.benchRegisters(a.Registers, &res)
}

// bench has several copies in flight, as a driver would.
func (k *copier) bench(e push.Engine, route [2]string, size uint32, rounds int) (res proto.BenchCopy, err error) {
	var domains [2]drm.Domain
	var buffers [2]Buffer
	for i, r := range route {
		if domains[i], err = domainOf(r); err != nil {
			return res, err
		}
		if buffers[i], err = k.s.dev.NewBuffer(uint64(size), domains[i]); err != nil {
			return res, err
		}
		defer closeInto(buffers[i], &err)
	}
	want, poison := make([]byte, size), make([]byte, size)
	fill(want, uint64(size)+1)
	complement(poison, want)
	if err := k.upload(e, buffers[0], domains[0], want); err != nil {
		return res, err
	}
	if err := k.upload(e, buffers[1], domains[1], poison); err != nil {
		return res, err
	}
	if err := k.s.use(e.Object()); err != nil {
		return res, err
	}
	var b push.Buffer
	b.Copy(e, buffers[1].VA(), buffers[0].VA(), uint64(size))
	start := time.Now()
	for range rounds {
		if err := k.s.Submit(&b, ref(buffers[0], domains[0], false), ref(buffers[1], domains[1], true)); err != nil {
			return res, err
		}
	}
	if err := k.s.Flush(); err != nil {
		return res, err
	}
	took := time.Since(start)
	got, err := k.download(e, buffers[1], domains[1], want)
	if err != nil {
		return res, err
	}
	if !bytes.Equal(got, want) {
		wrong, first := differ(got, want)
		return res, fmt.Errorf("%d bytes wrong, the first at %#x", wrong, first)
	}
	return proto.BenchCopy{From: route[0], To: route[1], MiBps: float64(size) * float64(rounds) / took.Seconds() / (1 << 20)}, nil
}

// access times f. What f does to the card is one plain load or store: an atomic store is an
// exchange, which reads as well.
func access(what string, n int, f func(i int)) proto.BenchAccess {
	start := time.Now()
	for i := range n {
		f(i)
	}
	return proto.BenchAccess{What: what, NS: float64(time.Since(start).Nanoseconds()) / float64(n)}
}

// benchBAR times words of a VRAM buffer, through BAR1.
func (k *copier) benchBAR(n int, res *proto.BenchResult) (err error) {
	b, err := k.s.dev.NewBuffer(64<<10, drm.DomainVRAM)
	if err != nil {
		return err
	}
	defer closeInto(b, &err)
	m, err := b.Bytes()
	if err != nil {
		return err
	}
	at := func(i int) *uint32 { return (*uint32)(unsafe.Pointer(&m[i*4%len(m)])) }
	ram := make([]byte, len(m))
	inRAM := func(i int) *uint32 { return (*uint32)(unsafe.Pointer(&ram[i*4%len(ram)])) }
	for i := 0; i < len(m); i += 4096 { // the page faults that map it
		*at(i / 4), *inRAM(i / 4) = 1, 1
	}
	wrong := 0
	res.Access = append(res.Access,
		access("bar1-write vram", n, func(i int) { *at(i) = uint32(i) * 7 }),
		access("bar1-read vram", n, func(i int) {
			if v := *at(i); v != uint32(i)*7 && n <= len(m)/4 {
				wrong++
			}
		}),
		access("ram-write", n, func(i int) { *inRAM(i) = uint32(i) * 7 }),
		access("ram-read", n, func(i int) {
			if v := *inRAM(i); v != uint32(i)*7 && n <= len(ram)/4 {
				wrong++
			}
		}))
	if wrong > 0 {
		return fmt.Errorf("%d of %d words written through BAR1 read back wrong", wrong, n)
	}
	return nil
}

// Registers to time. The write goes to the last of PBUS's 64 software scratch registers,
// which has no effect and which nouveau leaves alone on this chip.
const (
	regSpace   = 16 << 20
	regBoot0   = 0x000000
	regPTimer  = 0x009400
	regScratch = 0x0014fc
)

// benchRegisters times registers of BAR0.
func (e *Env) benchRegisters(n int, res *proto.BenchResult) error {
	regs, done, err := e.BAR(0, regSpace)
	if err != nil {
		res.Skipped = append(res.Skipped, "registers: "+err.Error())
		return nil
	}
	defer done()
	var last uint32
	read := func(r int) { last = atomic.LoadUint32(&regs[r/4]) }
	if read(regBoot0); last>>20&0x1ff != 0x0c0 {
		return fmt.Errorf("PMC_BOOT_0 is %#08x: not a GF100", last)
	}
	res.Access = append(res.Access,
		access("bar0-read NV_PMC_BOOT_0", n, func(int) { read(regBoot0) }),
		access("bar0-read NV_PTIMER_TIME_0", n, func(int) { read(regPTimer) }),
		access("bar0-write NV_PBUS_SW_SCRATCH(63)", n, func(i int) { regs[regScratch/4] = uint32(i) }),
	)
	return nil
}
