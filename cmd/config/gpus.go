package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

const (
	// own is what nobody else can have of the card's memory.
	own Size = aggregator.Own
	// leastGPU is the least memory of a GPU, as the tags of Share have it.
	leastGPU = 64 * mib
	// mostChannels is the largest share of the channels that a GPU gets unasked.
	mostChannels = 32

	mib Size = 1 << 20
)

var gpuName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// complete gives every virtual GPU what it does not say itself, and checks that
// all of them are possible and fit on the card together.
func (l *Layer) complete() error {
	for i := range l.Config.Profiles {
		p := &l.Config.Profiles[i]
		if err := checkName(p.Name, &p.entry); err != nil {
			return err
		}
		for j := range i {
			if q := &l.Config.Profiles[j]; q.Name == p.Name {
				return &Error{Where: p.Where("name"), Value: p.Name, Reason: "is there twice, first at " + q.Where("name")}
			}
		}
		if err := checkOptions(p); err != nil {
			return err
		}
	}
	l.settleScheduler()
	if err := l.checkScheduler(); err != nil {
		return err
	}
	for i := range l.Config.GPUs {
		if err := l.Complete(&l.Config.GPUs[i]); err != nil {
			return err
		}
	}
	if len(l.Config.GPUs) == 0 {
		g := GPU{Shadow: l.Config.Shadow} // what a GPU gets that is added, if it does not say itself
		if err := g.checkShadow(); err != nil {
			return err
		}
		return l.fitSocket()
	}
	if l.Config.Socket != "" {
		return &Error{Where: l.Where("socket"), Value: l.Config.Socket, Reason: "gives the whole card to one guest, and " + l.Config.GPUs[0].at + " shares it; remove one of them"}
	}
	return l.Fit(l.Config.GPUs)
}

// Complete gives one virtual GPU what it does not say itself: its profile's
// value, else the card's, else the default.
func (l *Layer) Complete(g *GPU) error {
	if err := checkName(g.Name, &g.entry); err != nil {
		return err
	}
	if g.Socket == "" {
		return &Error{Where: g.Where("socket"), Reason: "missing; say where QEMU shall attach, for example " + g.Name + ".sock"}
	}
	if g.Profile != "" {
		if err := l.useProfile(g); err != nil {
			return err
		}
	}
	if !g.has("vram") {
		return &Error{Where: g.Where("vram"), Reason: "missing; say how much of the card's memory it gets, for example 256MiB"}
	}
	if err := checkOptions(g); err != nil {
		return err
	}
	if g.has("channels") && g.has("guaranteed") && g.Guaranteed > g.Channels {
		return &Error{Where: g.Where("guaranteed"), Value: fmt.Sprint(g.Guaranteed), Reason: fmt.Sprintf("more than the %d that it may have at a time (%s)", g.Channels, g.Where("channels"))}
	}
	inherit(g, &l.Config.Card, func(string) bool { return true }, "vram")
	inherit(g, &l.Config.Server, func(string) bool { return true })
	inherit(g, &l.Config, func(key string) bool { return strings.HasPrefix(key, shadowKeys) })
	if err := g.checkShadow(); err != nil {
		return err
	}
	if !g.has("tables") {
		g.Tables = tablesFor(g.VRAM)
	}
	g.CardTime.complete()
	return nil
}

func (l *Layer) useProfile(g *GPU) error {
	var names []string
	for i := range l.Config.Profiles {
		p := &l.Config.Profiles[i]
		if p.Name == g.Profile {
			inherit(g, p, p.has, "name")
			return nil
		}
		names = append(names, p.Name)
	}
	reason := "there are no profiles"
	if len(names) > 0 {
		reason = "no such profile; " + Known(g.Profile, names)
	}
	return &Error{Where: g.Where("profile"), Value: g.Profile, Reason: reason}
}

func checkName(name string, e *entry) error {
	switch {
	case name == "":
		return &Error{Where: e.Where("name"), Reason: "missing; everything else is called by it"}
	case !gpuName.MatchString(name):
		return &Error{Where: e.Where("name"), Value: name, Reason: "may have letters, digits and . _ -, begins with a letter or digit, and has at most 64 of them"}
	}
	return nil
}

// Fit checks that completed GPUs fit on the card together, and gives channels to
// those that do not say how many: an even share of what is left, at most 32.
func (l *Layer) Fit(gpus []GPU) error {
	if most := l.Config.Limits.Guests; len(gpus) > most {
		return &Error{Where: gpus[most].at, Reason: fmt.Sprintf("is GPU %d; a card is shared by at most %d (%s)", most+1, most, l.Where("limits.guests"))}
	}
	if err := l.fitNames(gpus); err != nil {
		return err
	}
	if err := l.fitMemory(gpus); err != nil {
		return err
	}
	return fitChannels(gpus)
}

// fitSocket refuses one path for the card and for control.
func (l *Layer) fitSocket() error {
	if l.Config.Socket == "" || l.Config.Control == "" {
		return nil
	}
	socket, err := filepath.Abs(l.Config.Socket)
	if err != nil {
		return err
	}
	control, err := filepath.Abs(l.Config.Control)
	if err != nil {
		return err
	}
	if socket != control {
		return nil
	}
	return &Error{Where: l.Where("control"), Value: l.Config.Control, Reason: "is there twice, first at " + l.Where("socket") + "; give each a path of its own"}
}

// fitNames refuses names and sockets that are there twice.
func (l *Layer) fitNames(gpus []GPU) error {
	names, sockets := make(map[string]*GPU), make(map[string]string)
	if l.Config.Control != "" {
		path, err := filepath.Abs(l.Config.Control)
		if err != nil {
			return err
		}
		sockets[path] = l.Where("control")
	}
	for i := range gpus {
		g := &gpus[i]
		if first := names[g.Name]; first != nil {
			reason := "is there twice, first at " + first.Where("name")
			if first.at == g.at { // of two flags that begin alike one would read like the other
				reason = "two --gpu have this name"
			}
			return &Error{Where: g.Where("name"), Value: g.Name, Reason: reason + "; give each GPU a name of its own"}
		}
		names[g.Name] = g
		path, err := filepath.Abs(g.Socket)
		if err != nil {
			return err
		}
		if first, taken := sockets[path]; taken {
			return &Error{Where: g.Where("socket"), Value: g.Socket, Reason: "is there twice, first at " + first + "; give each a path of its own"}
		}
		sockets[path] = g.Where("socket")
	}
	return nil
}

// fitMemory holds the sum of what the GPUs take against the card's memory.
func (l *Layer) fitMemory(gpus []GPU) error {
	left := l.Config.Card.VRAM - own
	for i := range gpus {
		g := &gpus[i]
		if g.VRAM+g.Tables > left {
			return l.tooLarge(g, left)
		}
		left -= g.VRAM + g.Tables
	}
	return nil
}

// tooLarge says that a GPU does not fit into what is left of the card's memory, and what would:
// less memory, or, where what was said of its page tables leaves too little for any, less of those.
func (l *Layer) tooLarge(g *GPU, left Size) error {
	key, value, takes := "vram", g.VRAM, fmt.Sprintf("with %v for its page tables", g.Tables)
	others, beside := l.Config.Card.VRAM-own-left, ""
	kept := fmt.Sprintf("of its %v the aggregator keeps %v", l.Config.Card.VRAM, own)
	if others > 0 {
		kept += fmt.Sprintf(", and other GPUs have %v", others)
		beside = " beside them"
	}
	fits := fmt.Sprintf("no GPU fits%s, so", beside)
	most, unsaid := g.most(left), new(GPU).most(left)
	if most < leastGPU && g.has("tables") && (g.VRAM+mib <= left || unsaid >= leastGPU) {
		key, value, takes = "tables", g.Tables, fmt.Sprintf("with %v of vram", g.VRAM)
	}
	switch {
	case most >= leastGPU:
		fits = fmt.Sprintf("%v or less fits, or", most)
	case key == "tables" && g.VRAM+mib <= left:
		fits = fmt.Sprintf("%v or less fits, or", (left-g.VRAM)&^(mib-1))
	case key == "tables":
		fits = fmt.Sprintf("without tables vram=%v or less fits, or", unsaid)
	}
	card := l.Where("card.vram")
	if l.isDefault("card.vram") {
		card = "card.vram in the file"
	}
	if card != "--vram" {
		card += ", or --vram"
	}
	return &Error{Where: g.Where(key), Value: value.String(), Reason: fmt.Sprintf("does not fit: %s it takes %v, and the card has %v left: %s; %s start the server with a larger card (%s)",
		takes, g.VRAM+g.Tables, left, kept, fits, card)}
}

// Room says how much of the card's memory is left when GPUs and their tables have
// taken so much of it, and the most memory that one more GPU can have of that; 0 if
// it cannot have the least that a GPU needs.
func (l *Layer) Room(taken Size) (left, most Size) {
	left = l.Config.Card.VRAM - own
	left -= min(left, taken)
	if most = new(GPU).most(left); most < leastGPU {
		most = 0
	}
	return left, most
}

// tablesFor is the memory for page tables of a GPU that does not say it.
func tablesFor(vram Size) Size { return Size(aggregator.DefaultTables(uint64(vram))) }

// most is the most memory that the GPU can have if it and its tables get left.
func (g *GPU) most(left Size) Size {
	if g.has("tables") {
		return (left - min(left, g.Tables)) &^ (mib - 1)
	}
	vram := left &^ (mib - 1)
	for vram > 0 && vram+tablesFor(vram) > left {
		vram -= mib
	}
	return vram
}

// fitChannels does the same for channels that are guaranteed, and shares the rest
// out. A GPU that does not say how many are guaranteed can count on all of its own.
func fitChannels(gpus []GPU) error {
	left := gf100.Channels
	var unsaid []*GPU
	for i := range gpus {
		g := &gpus[i]
		key := "guaranteed"
		switch {
		case g.Channels == 0 && g.Guaranteed == 0:
			unsaid = append(unsaid, g)
			continue
		case g.Channels == 0:
			g.Channels = max(g.Guaranteed, mostChannels)
		case g.Guaranteed == 0:
			key, g.Guaranteed = "channels", g.Channels
		}
		if g.Guaranteed > left {
			return &Error{Where: g.Where(key), Value: fmt.Sprint(g.Guaranteed), Reason: fmt.Sprintf("does not fit: the card has %d, and %d are left for it%s; %s", gf100.Channels, left, takers(gpus[:i]), g.fewer(gpus, left))}
		}
		left -= g.Guaranteed
	}
	for i, g := range slices.Backward(unsaid) {
		g.Channels = min(left/(i+1), mostChannels)
		if g.Channels == 0 {
			return &Error{Where: g.Where("channels"), Reason: fmt.Sprintf("the card has %d, and the other GPUs take all%s; %s", gf100.Channels, takers(gpus), g.fewer(gpus, left))}
		}
		g.Guaranteed = g.Channels
		left -= g.Channels
	}
	return nil
}

// takers lists which GPUs have how many channels for sure: those with as many together.
func takers(gpus []GPU) string {
	names, unsaid := make(map[int][]string), make(map[int]bool)
	for i := range gpus {
		g := &gpus[i]
		if n := g.Guaranteed; n > 0 {
			names[n] = append(names[n], g.Name)
			unsaid[n] = unsaid[n] || !g.has("channels") && !g.has("guaranteed")
		}
	}
	var parts []string
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(names))) {
		of := names[n]
		part := strings.Join(of, ", ")
		if len(of) > mostNamed {
			part = fmt.Sprintf("%s and %d others", strings.Join(of[:mostNamed], ", "), len(of)-mostNamed)
		}
		part += fmt.Sprintf(" %d", n)
		if len(of) > 1 {
			part += " each"
		}
		if unsaid[n] {
			part += ", as a GPU has that does not say channels"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "; ")
}

// mostNamed is how many GPUs a message names one by one.
const mostNamed = 8

// fewer says how there would be channels for it beside those that are left: those of a GPU
// that is there are its own until it is removed.
func (g *GPU) fewer(gpus []GPU, left int) string {
	each, ask := gf100.Channels/len(gpus), ""
	if all := gf100.Channels - (len(gpus) - 1); g.Guaranteed > all {
		key := "channels"
		if g.has("guaranteed") {
			key = "guaranteed"
		}
		ask = fmt.Sprintf("ask for %s=%d or less, for each other GPU needs one; ", key, all)
	}
	if !strings.HasPrefix(g.at, addSource+" ") {
		return fmt.Sprintf("%sgive the others fewer: channels, or guaranteed; of %d GPUs each can have channels=%d", ask, len(gpus), each)
	}
	most := &gpus[0]
	for i := range gpus {
		if gpus[i].Guaranteed > most.Guaranteed && gpus[i].Name != g.Name {
			most = &gpus[i]
		}
	}
	some := "remove some of them and add them with fewer"
	need := g.Guaranteed - left
	if g.Guaranteed == 0 { // half of what the other has, for it does not say how many
		need = (most.Guaranteed + 1) / 2
	}
	if need < most.Guaranteed {
		some = fmt.Sprintf("remove one of them and add it with fewer, for example %s with channels=%d, which leaves %d for this one", most.Name, most.Guaranteed-need, left+need)
	}
	return fmt.Sprintf("%s%s, or all with channels=%d; umbra status says how many are free", ask, some, each)
}
