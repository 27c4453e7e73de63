package isolation

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/guest/hostile"
	"github.com/umbra-gpu/umbra/vfiouser"
)

const (
	cardVRAM  = 512 << 20
	guestVRAM = 64 << 20
)

// secret fills what is not the attacker's. No guest's data has it by chance.
const secret = 0xc5a3_91d7_4be8_f260

// Ward is a card with an attacker, a victim and a bystander.
type Ward struct {
	Card     *soft.Card
	Agg      *aggregator.Aggregator
	Attacker *hostile.Attacker
	Seat     *Seat // the attacker's

	victim    *victim
	bystander *aggregator.Guest
	free      []aggregator.Extent // what nobody has
	kept      []kept
	seats     []*Seat
	maps      homes.Map // what clients may map, and do
	bells     doorbell.Mode
	dir       string

	mu    sync.Mutex
	found []string
}

// kept is memory of the card that must stay as it was.
type kept struct {
	what string
	at   aggregator.Extent
	want []byte // nil is the secret from end to end
}

// Seat is a virtual GPU behind a socket.
type Seat struct {
	*serve.Virtual
	Socket string
	cancel context.CancelFunc
	served chan error
}

// deaf is a guest that is not told anything.
type deaf struct{}

func (deaf) EngineEvent(uint32)               {}
func (deaf) MMUFault(uint8, gf100.MMUFault)   {}
func (deaf) PBDMAError(gf100.PBDMAError)      {}
func (deaf) GraphTrap(uint8, gf100.GraphTrap) {}
func (deaf) CopyTrap(uint8, gf100.CopyTrap)   {}
func (deaf) BindError()                       {}
func (deaf) RunlistError()                    {}
func (deaf) Done(bool)                        {}

// NewWard makes one, whose guests have mapped all that can be mapped, doorbells too.
// plant, if not nil, puts a card with a hole before the real one.
func NewWard(plant func(card.Card) card.Card) (*Ward, error) {
	return NewWardOf(homes.MapAll, doorbell.Poll, plant)
}

// NewWardOf is NewWard with what clients may map, and how their doorbells are heard.
func NewWardOf(maps homes.Map, bells doorbell.Mode, plant func(card.Card) card.Card) (*Ward, error) {
	w := &Ward{maps: maps, bells: bells}
	var err error
	if w.dir, err = os.MkdirTemp("", "umbra-"); err != nil {
		return nil, err
	}
	if err := w.build(plant); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Ward) build(plant func(card.Card) card.Card) (err error) {
	if w.Card, err = soft.New(soft.Config{VRAM: cardVRAM, Watch: w.watch}); err != nil {
		return err
	}
	var c card.Card = w.Card
	if plant != nil {
		c = plant(c)
	}
	agg, err := aggregator.New(c)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.Agg = agg
	w.mu.Unlock()
	stay, err := w.formerOwners()
	if err != nil {
		return err
	}
	if w.bystander, err = agg.AddGuest(aggregator.GuestConfig{Name: "bystander", VRAM: 32 << 20}, deaf{}); err != nil {
		return err
	}
	for _, name := range []string{"attacker", "victim"} {
		seat, err := w.seat(name)
		if err != nil {
			return err
		}
		w.seats = append(w.seats, seat)
	}
	w.Seat = w.seats[0]
	if err := remove(stay); err != nil {
		return err
	}
	if err := w.hide(); err != nil {
		return err
	}
	if w.victim, err = newVictim(w.seats[1].Socket); err != nil {
		return err
	}
	w.keep("the victim's memory", part(w.seats[1].Guest.Extents(), w.victim.still.Addr, w.victim.still.Size))
	w.keepAsIs("the victim's page tables", w.seats[1].Guest.Tables())
	w.keepAsIs("the aggregator's own tables", w.Agg.Fixed())
	return w.arm()
}

// part returns where n bytes at addr of a guest's memory lie on the card.
func part(list []aggregator.Extent, addr, n uint64) (out []aggregator.Extent) {
	for _, e := range list {
		from, to := max(addr, e.Guest), min(addr+n, e.Guest+e.Size)
		if from < to {
			out = append(out, aggregator.Extent{Guest: from, Card: e.Card + from - e.Guest, Size: to - from})
		}
	}
	return out
}

// keep fills memory with the secret, and watches it.
func (w *Ward) keep(what string, list []aggregator.Extent) {
	for _, e := range list {
		w.fill(e.Card, e.Size)
		w.kept = append(w.kept, kept{what: what, at: e})
	}
}

// keepAsIs watches memory that is in use.
func (w *Ward) keepAsIs(what string, list []aggregator.Extent) {
	for _, e := range list {
		p := make([]byte, e.Size)
		w.Card.ReadVRAM(e.Card, p)
		w.kept = append(w.kept, kept{what, e, p})
	}
}

// formerOwners fills the whole card with the secret and gives every second piece
// of it back: what those who come next get lies scattered. The others stay until
// then.
func (w *Ward) formerOwners() (stay []*aggregator.Guest, err error) {
	var leave []*aggregator.Guest
	for i := 0; ; i++ {
		g, err := w.Agg.AddGuest(aggregator.GuestConfig{Name: fmt.Sprintf("former%d", i), VRAM: 9 << 20, Channels: 1}, deaf{})
		if err != nil {
			break
		}
		for _, e := range g.Extents() {
			w.fill(e.Card, e.Size)
		}
		if i%2 == 0 {
			leave = append(leave, g)
		} else {
			stay = append(stay, g)
		}
	}
	return stay, remove(leave)
}

func remove(list []*aggregator.Guest) error {
	for _, g := range list {
		if err := g.Remove(); err != nil {
			return err
		}
	}
	return nil
}

func secretBytes(n uint64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, secret), int(n/8))
}

func (w *Ward) fill(at, n uint64) { w.Card.WriteVRAM(at, secretBytes(n)) }

// hide fills the bystander's memory, what is kept for its page tables, and what
// nobody has.
func (w *Ward) hide() error {
	w.keep("the bystander's memory", w.bystander.Extents())
	w.keep("the bystander's page tables", w.bystander.Tables())
	g, err := w.Agg.AddGuest(aggregator.GuestConfig{Name: "nobody", VRAM: 64 << 20, Channels: 1}, deaf{})
	if err != nil {
		return err
	}
	w.free = g.Extents()
	if err := g.Remove(); err != nil {
		return err
	}
	w.keep("unowned memory", w.free)
	return nil
}

func (w *Ward) arm() error {
	g, err := guest.Attach(context.Background(), w.Seat.Socket, guest.Config{RAM: 8 << 20, Map: true})
	if err != nil {
		return err
	}
	if w.Attacker, err = hostile.New(g); err != nil {
		return err
	}
	w.Attacker.Seen = func(act hostile.Action, p []byte) { w.look(fmt.Sprintf("read by %v", act.Kind), p) }
	return nil
}

func (w *Ward) seat(name string) (*Seat, error) {
	v, err := serve.NewVirtual(w.Agg, aggregator.GuestConfig{Name: name, VRAM: guestVRAM, Map: w.maps, Doorbell: w.bells}, devmodel.Config{})
	if err != nil {
		return nil, err
	}
	s := &Seat{Virtual: v, Socket: filepath.Join(w.dir, name), served: make(chan error, 1)}
	srv, err := vfiouser.NewServer(v, vfiouser.Options{})
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	l, err := vfiouser.Listen(s.Socket)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() { s.served <- srv.Serve(ctx, l) }()
	return s, nil
}

// report notes a violation, the first few of them.
func (w *Ward) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.found) < 20 {
		w.found = append(w.found, fmt.Sprintf(format, args...))
	}
}

// watch is told of every access of the card's channels.
func (w *Ward) watch(id uint8, t shadowpt.Target, addr uint64, n int, write bool) {
	w.mu.Lock()
	agg := w.Agg
	w.mu.Unlock()
	if err := agg.Audit(id, t, addr, n, write); err != nil {
		w.report("%v", err)
	}
}

// look searches what the attacker got for anything that is not its own.
func (w *Ward) look(where string, p []byte) {
	half := binary.LittleEndian.AppendUint64(nil, secret)
	for _, part := range [][]byte{half[:4], half[4:]} {
		if bytes.Contains(p, part) {
			w.report("secret in what was %s", where)
			return
		}
	}
}

// mappedParts are what drivers use of their windows.
var mappedParts = []struct {
	bar  int
	off  uint64
	size int
}{{0, 0x300000, 1 << 20}, {0, 0x700000, 1 << 20}, {1, 512 << 10, 4 << 20}, {3, 0, 4 << 20}}

// Violations returns what was found, after one more look at all memory. The
// attacker's channels may still run.
func (w *Ward) Violations() []string {
	w.look("copied to RAM", w.Attacker.Guest.Memory().Data)
	for _, at := range mappedParts {
		if mem := w.Attacker.Guest.Mapped(at.bar, at.off); mem != nil {
			w.look(fmt.Sprintf("mapped of BAR%d", at.bar), mem[:min(len(mem), at.size)])
		}
	}
	buf := make([]byte, 1<<20)
	for i := range w.kept {
		w.unchanged(&w.kept[i], buf)
	}
	for _, e := range w.Seat.Guest.Extents() {
		for off := uint64(0); off < e.Size; off += uint64(len(buf)) {
			p := buf[:min(uint64(len(buf)), e.Size-off)]
			w.Card.ReadVRAM(e.Card+off, p)
			w.look("in its VRAM", p)
		}
	}
	if err := w.Attacker.Unmapped(); err != nil {
		w.report("%v", err)
	}
	if err := w.victim.failed(); err != nil {
		w.report("the victim: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.found
	w.found = nil
	return found
}

func (w *Ward) unchanged(k *kept, buf []byte) {
	secret := secretBytes(uint64(len(buf)))
	for off := uint64(0); off < k.at.Size; off += uint64(len(buf)) {
		p := buf[:min(uint64(len(buf)), k.at.Size-off)]
		want := secret[:len(p)]
		if k.want != nil {
			want = k.want[off:][:len(p)]
		}
		if w.Card.ReadVRAM(k.at.Card+off, p); !bytes.Equal(p, want) {
			i := uint64(0)
			for p[i] == want[i] {
				i++
			}
			w.report("%s changed at %#x of the card", k.what, k.at.Card+off+i)
			w.Card.WriteVRAM(k.at.Card+off, want)
		}
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
	if w.Attacker != nil {
		errs = append(errs, w.Attacker.Guest.Close())
	}
	for _, s := range w.seats {
		s.cancel()
		if err := <-s.served; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		errs = append(errs, s.Virtual.Close())
	}
	if w.bystander != nil {
		errs = append(errs, w.bystander.Remove())
	}
	if w.Agg != nil {
		errs = append(errs, w.Agg.Close())
	}
	if w.Card != nil {
		errs = append(errs, w.Card.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}
