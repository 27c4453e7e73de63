package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

const (
	mib Size = 1 << 20
	// reserved is the card's memory that no GPU can have.
	reserved Size = aggregator.Overhead
	// leastGPU is the least memory of a GPU, as the tag of Share has it.
	leastGPU = 64 * mib
	// MostChannels is the largest share of the channels that a GPU gets unasked.
	MostChannels = 32
)

// Fit checks that completed GPUs fit on the card together; whether into its memory, once Card.VRAM has that. It gives channels to GPUs that do
// not say how many: an even share of what is left, at most 32.
func (c *Config) Fit(gpus []GPU) error {
	if most := c.Limits.Guests; len(gpus) > most {
		return &Error{Where: gpus[most].at, Reason: fmt.Sprintf("is GPU %d, and at most %d share the card (%s)", most+1, most, c.Where("limits.guests"))}
	}
	if err := c.fitNames(gpus); err != nil {
		return err
	}
	left := c.Card.VRAM - reserved
	for i := range gpus {
		g := &gpus[i]
		if c.Card.VRAM == 0 { // not known yet
			continue
		}
		if g.Memory()+g.Tables > left {
			return c.tooLarge(g, left)
		}
		left -= g.Memory() + g.Tables
	}
	return fitChannels(gpus)
}

// claims has the option that first claimed a name or path.
type claims map[string]string

// claim refuses an id that is there already. Value is the id as the user wrote it; each must have
// one of its own.
func (t claims) claim(id, value, where, own string) error {
	if first, used := t[id]; used {
		return &Error{where, value, "is there twice, first at " + first + "; give each " + own + " of its own"}
	}
	t[id] = where
	return nil
}

// fitNames refuses names and sockets that are there twice.
func (c *Config) fitNames(gpus []GPU) error {
	var errs []error
	names, sockets := make(claims), make(claims)
	for i := range gpus {
		if g := &gpus[i]; g.Name != "" {
			errs = append(errs, names.claim(g.Name, g.Name, g.Where("name"), "GPU a name"))
		}
	}
	for _, s := range c.Sockets(gpus) {
		abs, err := filepath.Abs(*s.Path)
		if err == nil {
			err = sockets.claim(abs, *s.Path, s.Where, "a path")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tooLarge says that a GPU does not fit into what is left of the card's memory, and what would.
func (c *Config) tooLarge(g *GPU, left Size) error {
	room := largest(left, g.Chip, func(vram Size) Size {
		if g.Given("tables") {
			return g.Tables
		}
		return tablesFor(vram)
	})
	more, key := "give the card more", " (card.vram, --vram)"
	fits := fmt.Sprintf("no GPU fits; give the card %v or more", roundUp(c.Card.VRAM-left+g.Memory()+g.Tables, 64*mib))
	if c.Card.Kind == Nvidia {
		more, key, fits = "give other GPUs less", "", "no GPU fits; give other GPUs less"
	}
	if room >= leastGPU {
		fits = fmt.Sprintf("vram=%v fits, or %s", room, more)
	} else if g.Given("tables") && largest(left, g.Chip, tablesFor) >= leastGPU {
		fits = fmt.Sprintf("without tables vram=%v fits, or %s", largest(left, g.Chip, tablesFor), more)
	}
	return &Error{g.Where("vram"), g.VRAM.String(), fmt.Sprintf("does not fit: with %v for page tables it takes %v, and the card's %v have %v left; %s%s",
		g.Tables, g.Memory()+g.Tables, c.Card.VRAM, left, fits, key)}
}

func roundUp(n, unit Size) Size { return (n + unit - 1) / unit * unit }

// ownAddresses are those that a server takes beside the card's memory, windows, and clients' memory.
const ownAddresses Size = 2 << 30

// FitAddresses checks that a process that has so many addresses can map the card and the windows of GPUs.
func (c *Config) FitAddresses(gpus []GPU, all Size) error {
	need := c.Card.VRAM + ownAddresses
	for i := range gpus {
		g := &gpus[i]
		if g.BARMap&aperture.MapBAR1 == 0 {
			continue
		}
		if need += g.BAR1; need > all {
			return &Error{g.Where("bar1"), g.BAR1.String(), fmt.Sprintf("with the card's %v and the server's %v it takes %v of addresses, and this process may have %v; give less, leave bar1 out of bar-map, or raise the limit RLIMIT_AS",
				c.Card.VRAM, ownAddresses, need, all&^(mib-1))}
		}
	}
	return nil
}

// largest is the most memory of a chip that fits into left together with its page tables.
func largest(left Size, chip string, tables func(vram Size) Size) Size {
	m := memories[chip]
	vram := left &^ (m.unit - 1)
	for vram > 0 && vram+m.reserved+tables(vram) > left {
		vram -= m.unit
	}
	return vram
}

// Room says how much of the card's memory is left when GPUs and their tables use so much of
// it, and the most memory that one more GPU of the default chip can have; 0 if that is less than a GPU needs.
func (c *Config) Room(used Size) (left, most Size) {
	left = c.Card.VRAM - reserved
	left -= min(left, used)
	if most = largest(left, c.Card.Chip, tablesFor); most < leastGPU {
		most = 0
	}
	return left, most
}

// tablesFor is the memory for page tables of a GPU that does not say it.
func tablesFor(vram Size) Size { return Size(aggregator.DefaultTables(uint64(vram))) }

// fitChannels holds the guaranteed channels against the card's, and shares the rest out. A GPU
// that does not say how many are guaranteed can count on all of its own.
func fitChannels(gpus []GPU) error {
	left := gf100.Channels
	advice := fmt.Sprintf("give other GPUs fewer; %d GPUs can have channels=%d each", len(gpus), gf100.Channels/max(1, len(gpus)))
	var unsaid []*GPU
	for i := range gpus {
		g := &gpus[i]
		key := "guaranteed"
		switch {
		case g.Channels == 0 && g.Guaranteed == 0:
			unsaid = append(unsaid, g)
			continue
		case g.Channels == 0:
			g.Channels = max(g.Guaranteed, MostChannels)
		case g.Guaranteed == 0:
			key, g.Guaranteed = "channels", g.Channels
		}
		if g.Guaranteed > left {
			return &Error{g.Where(key), fmt.Sprint(g.Guaranteed), fmt.Sprintf("does not fit: of the card's %d channels %d are left; ask for fewer, or %s", gf100.Channels, left, advice)}
		}
		left -= g.Guaranteed
	}
	for i, g := range unsaid {
		g.Channels = min(left/(len(unsaid)-i), MostChannels)
		if g.Channels == 0 {
			return &Error{Where: g.Where("channels"), Reason: fmt.Sprintf("the other GPUs have all of the card's %d channels; %s", gf100.Channels, advice)}
		}
		g.Guaranteed = g.Channels
		left -= g.Channels
	}
	return nil
}

// clientPart is an option that bounds what one client's memory may take of something of the process.
// The option's default is lowered where all possible guests together would take more than their part.
type clientPart struct {
	value func(*Server) uint64
	part  uint64 // 1/part is for the memory of all clients
	least uint64 // with less a machine does not work; as the tag has it
	size  bool   // the value is a size

	unit, all, raise string // for errors
}

// Options of which each client gets a part.
const (
	ClientMappings = "server.max-dma-mappings" // of as many as the system allows a process (vm.max_map_count)
	ClientMemory   = "server.max-dma-memory"   // of the addresses of this process
	ClientAlloc    = "server.max-dma-alloc"    // of the memory that this process can have
)

var clientParts = map[string]*clientPart{
	// The other mappings are the card's. A server without any left cannot even grow its heap.
	ClientMappings: {func(s *Server) uint64 { return uint64(s.MaxDMAMappings) }, 8, 8, false,
		" mappings", "an eighth of the system's", "raise the sysctl vm.max_map_count to"},
	ClientMemory: {func(s *Server) uint64 { return uint64(s.MaxDMAMemory) }, 4, uint64(256 * mib), true,
		" of addresses", "a quarter of the process's", "raise the limit RLIMIT_AS to"},
	ClientAlloc: {func(s *Server) uint64 { return uint64(s.MaxDMAAlloc) }, 2, uint64(mib), true,
		"", "half of this machine's or control group's", "raise the control group's memory.max to"},
}

// ClientPart fits the value of one of these options to all that there is. Each possible guest has an
// even part, so none can take what the others, or the server, need. With alone one client has the
// whole card.
func (c *Config) ClientPart(key string, all uint64, alone bool) (uint64, error) {
	p := clientParts[key]
	n, guests := p.value(&c.Server), uint64(c.Limits.Guests)
	if alone {
		guests = 1
	}
	show := func(n uint64) string { return fmt.Sprint(n) }
	if p.size {
		all &^= uint64(mib - 1)
		show = func(n uint64) string { return Size(n).String() }
	}
	each := all / p.part / guests
	if n <= each {
		return n, nil
	}
	if !c.Given(key) {
		if each >= p.least {
			return each, nil
		}
		n = p.least
	}
	remedy := p.raise + " " + show(n*guests*p.part)
	if !alone {
		remedy = "lower limits.guests, or " + remedy
	} else if each >= p.least {
		remedy = "or " + remedy
	}
	if each >= p.least {
		remedy = fmt.Sprintf("give %s or less, %s", show(each), remedy)
	}
	return 0, &Error{c.Where(key), show(n), fmt.Sprintf("more than the %s%s of each of %d guests, which together may have %s %s; %s",
		show(each), p.unit, guests, p.all, show(all), remedy)}
}
