package isolation

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/report"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/hostile"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	cardVRAM  = 256 << 20
	guestVRAM = rig.VRAM
)

// secret fills memory that is not the attacker's. No guest's data has it by chance.
const secret = 0xc5a3_91d7_4be8_f260

// Ward is a card with an attacker, a victim and a bystander.
type Ward struct {
	*testserver.Shared
	Attacker *hostile.Attacker    // nil if it has a GH100
	Endpoint *testserver.Endpoint // the attacker's
	machine  *guest.Guest         // the attacker's

	options   options.Combination
	victim    *victim
	bystander *aggregator.Guest
	free      []card.Run // unowned card memory
	protected []protected

	owners []owner
	mu     sync.Mutex
	found  []string
}

// protected is memory of the card that must not change.
type protected struct {
	what string
	at   card.Run
	want []byte // nil is the secret from end to end
}

// noFace is the face of a guest that asks for nothing and ignores every event.
type noFace struct{}

func (noFace) Describe(uint32) (d channels.Description, ok bool) { return d, false }
func (noFace) Format() *shadowpt.Format                          { return shadowpt.Fermi }
func (noFace) Class() uint16                                     { return gf100.ChannelClass }
func (noFace) Round(aggregator.Ask) report.Notes                 { return 0 }
func (noFace) Completed(card.EngineSet)                          {}
func (noFace) Failed(uint32, report.Error)                       {}
func (noFace) Refused(uint32)                                    {}
func (noFace) Done(report.Notes)                                 {}

// NewWard makes a ward with GPUs of these options on a card of the configuration.
func NewWard(t testing.TB, c options.Combination, cfg testserver.SharedConfig) *Ward {
	t.Helper()
	cfg.Card.VRAM = cardVRAM
	w := newWard(t, c, cfg, rig.Fermi, 2)
	var err error
	w.machine, err = guest.Attach(context.Background(), w.Endpoint.Socket, w.client())
	require.NoError(t, err)
	w.Attacker, err = hostile.New(w.machine)
	require.NoError(t, err)
	w.Attacker.Seen = func(act hostile.Action, p []byte) { w.look(fmt.Sprintf("read by %v", act.Kind), p) }
	return w
}

// newWard makes a ward whose attacker has a chip, and is not there yet. The third of so many guests has
// that chip, too.
func newWard(t testing.TB, c options.Combination, cfg testserver.SharedConfig, chip rig.Chip, guests int) *Ward {
	t.Helper()
	w := &Ward{options: c}
	var err error
	cfg.Limits, err = c.Limits()
	require.NoError(t, err)
	cfg.Card.Watch = w.watch
	w.Shared, err = testserver.NewSharedWith(cfg)
	require.NoError(t, err)

	remaining := w.formerOwners(t)
	w.bystander, err = w.Agg.AddGuest(aggregator.GuestConfig{Name: "bystander", VRAM: 8 << 20, Tables: 2 << 20}, noFace{})
	require.NoError(t, err)
	w.own(w.bystander)
	for i, name := range []string{"attacker", "victim", "neighbour"}[:guests] {
		gpu, err := w.options.GPU(name, guestVRAM)
		require.NoError(t, err)
		if i%2 == 0 {
			gpu.Device, gpu.Share.VRAM = chip.Device, chip.VRAM
		}
		e, err := w.Add(gpu)
		require.NoError(t, err)
		w.own(e.Guest)
	}
	w.Endpoint = w.GPUs[0]
	remove(t, remaining...)
	w.hide(t)
	w.victim, err = newVictim(w.GPUs[1].Socket, w.client())
	require.NoError(t, err)
	w.keep("the victim's memory", part(w.GPUs[1].Guest.Extents(), w.victim.untouched.Addr, w.victim.untouched.Size))
	w.keepAsIs("the victim's page tables", w.GPUs[1].Guest.Tables())
	if w.Driver != nil {
		w.keepAsIs("the aggregator's own tables", w.Driver.Fixed())
	}
	return w
}

// client attaches as a guest's QEMU would.
func (w *Ward) client() guest.Config { return guest.Config{RAM: 2 << 20, Map: w.options.Maps()} }

// part returns where n bytes at addr of a guest's memory lie on the card.
func part(list []vram.Extent, addr, n uint64) (out []card.Run) {
	for _, e := range list {
		from, to := max(addr, e.Guest), min(addr+n, e.Guest+e.Size)
		if from < to {
			out = append(out, card.Run{Addr: e.Card + from - e.Guest, Size: to - from})
		}
	}
	return out
}

// runs returns where a guest's memory lies on the card.
func runs(g *aggregator.Guest) []card.Run { return part(g.Extents(), 0, g.VRAM()) }

// keep fills memory with the secret, and watches it, as far as the card has any there.
func (w *Ward) keep(what string, list []card.Run) {
	for _, e := range list {
		w.fill(e.Addr, e.Size)
		if !w.Memory.ReadVRAM(e.Addr, make([]byte, e.Size)) {
			continue
		}
		w.protected = append(w.protected, protected{what: what, at: e})
	}
}

// keepAsIs watches memory that is in use.
func (w *Ward) keepAsIs(what string, list []card.Run) {
	for _, e := range list {
		p := make([]byte, e.Size)
		w.Memory.ReadVRAM(e.Addr, p)
		w.protected = append(w.protected, protected{what, e, p})
	}
}

// formerOwners spreads the secret over the whole card and gives back three of four
// pieces, so that the next owners' memory is scattered. The rest stays until then.
func (w *Ward) formerOwners(t testing.TB) (remaining []*aggregator.Guest) {
	var leave []*aggregator.Guest
	for i := 0; ; i++ {
		g, err := w.Agg.AddGuest(aggregator.GuestConfig{Name: fmt.Sprintf("former%d", i), VRAM: 9 << 20, Tables: 2 << 20, Channels: 1}, noFace{})
		if err != nil {
			break // the card is full
		}
		for _, e := range g.Extents() { // one page of eight: every owner gets some
			for off := uint64(0); off < e.Size; off += 8 * shadowpt.SmallPage {
				w.fill(e.Card+off, shadowpt.SmallPage)
			}
		}
		if i%4 != 3 {
			leave = append(leave, g)
		} else {
			remaining = append(remaining, g)
		}
	}
	remove(t, leave...)
	return remaining
}

func remove(t testing.TB, list ...*aggregator.Guest) {
	for _, g := range list {
		require.NoError(t, g.Remove())
	}
}

// secrets is the secret, repeated; checks compare pieces of its size.
var secrets = bytes.Repeat(binary.LittleEndian.AppendUint64(nil, secret), 1<<17)

func (w *Ward) fill(at, n uint64) {
	for ; n > 0; at, n = at+uint64(len(secrets)), n-min(n, uint64(len(secrets))) {
		w.Memory.WriteVRAM(at, secrets[:min(n, uint64(len(secrets)))])
	}
}

// hide fills the bystander's memory and page tables, unowned memory, and the card's memory after each
// of the attacker's extents.
func (w *Ward) hide(t testing.TB) {
	w.keep("the bystander's memory", runs(w.bystander))
	w.keep("the bystander's page tables", w.bystander.Tables())
	g, err := w.Agg.AddGuest(aggregator.GuestConfig{Name: "unused", VRAM: 8 << 20, Channels: 1}, noFace{})
	require.NoError(t, err)
	w.free = runs(g)
	remove(t, g)
	w.keep("unowned memory", w.free)

	taken := slices.Concat(runs(w.bystander), w.bystander.Tables(), w.free)
	for _, g := range w.GPUs {
		taken = append(taken, slices.Concat(runs(g.Guest), g.Guest.Tables())...)
	}
	kept := 0
	for _, e := range w.Endpoint.Guest.Extents() {
		behind := card.Run{Addr: e.Card + e.Size, Size: shadowpt.BigPage}
		if !slices.ContainsFunc(taken, func(r card.Run) bool { return behind.Addr < r.Addr+r.Size && r.Addr < behind.Addr+behind.Size }) {
			w.keep("unowned memory", []card.Run{behind})
			kept++
		}
	}
	require.True(t, kept > 0 || len(w.Endpoint.Guest.Extents()) == 1, "all card memory after the attacker's is in use")
}

// report notes a violation, the first few of them.
func (w *Ward) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.found) < 20 {
		w.found = append(w.found, fmt.Sprintf(format, args...))
	}
}

// look searches what the attacker got for the secret.
func (w *Ward) look(where string, p []byte) {
	half := secrets[:8]
	for _, part := range [][]byte{half[:4], half[4:]} {
		if bytes.Contains(p, part) {
			w.report("secret in what was %s", where)
			return
		}
	}
}

// mappedParts are the parts of windows that drivers use.
var mappedParts = []struct {
	bar  int
	off  uint64
	size int
}{{0, 0x300000, 1 << 20}, {0, 0x700000, 1 << 20}, {1, 512 << 10, 4 << 20}, {3, 0, 4 << 20}}

// Violations checks all memory and returns the violations since the last call. The
// attacker's channels may still run.
func (w *Ward) Violations() []string {
	w.look("copied to RAM", w.machine.Memory().Data)
	for _, at := range mappedParts {
		if mem := w.machine.Mapped(at.bar, at.off); mem != nil {
			w.look(fmt.Sprintf("mapped of BAR%d", at.bar), mem[:min(len(mem), at.size)])
		}
	}
	for i := range w.protected {
		w.unchanged(&w.protected[i])
	}
	w.checkFIFO()
	for _, e := range w.Endpoint.Guest.Extents() {
		if w.Memory == nil {
			break
		}
		w.Memory.LookVRAM(e.Card, e.Size, func(_ uint64, p []byte) { w.look("in its VRAM", p) })
	}
	if w.Attacker != nil {
		if err := w.Attacker.Unmapped(); err != nil {
			w.report("%v", err)
		}
	}
	if w.victim != nil {
		if err := w.victim.failed(); err != nil {
			w.report("the victim: %v", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.found
	w.found = nil
	return found
}

func (w *Ward) unchanged(k *protected) {
	for off := uint64(0); off < k.at.Size; off += uint64(len(secrets)) {
		want := secrets[:min(uint64(len(secrets)), k.at.Size-off)]
		if k.want != nil {
			want = k.want[off:][:len(want)]
		}
		if w.Memory.SameVRAM(k.at.Addr+off, want) {
			continue
		}
		p := make([]byte, len(want))
		w.Memory.ReadVRAM(k.at.Addr+off, p)
		i := uint64(0)
		for i < uint64(len(p)) && p[i] == want[i] {
			i++
		}
		w.report("%s changed at %#x of the card", k.what, k.at.Addr+off+i)
		w.Memory.WriteVRAM(k.at.Addr+off, want)
	}
}

// Copies returns how many verified copies the victim has made.
func (w *Ward) Copies() uint64 { return w.victim.copies.Load() }

// Close ends everything.
func (w *Ward) Close() error {
	var errs []error
	if w.victim != nil {
		errs = append(errs, w.victim.close())
	}
	if w.machine != nil {
		errs = append(errs, w.machine.Close())
	}
	if w.bystander != nil {
		errs = append(errs, w.bystander.Remove())
	}
	return errors.Join(append(errs, w.Shared.Close())...)
}
