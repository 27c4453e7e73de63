// Package hostcards lists the cards that this machine has for umbra serve, and what each one lacks.
//
// The package has no state, locks or goroutines.
package hostcards

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
)

// Report is what a machine has.
type Report struct {
	Software Software  `json:"software"`
	Driver   *Driver   `json:"driver,omitempty"` // NVIDIA's; absent if it is not loaded
	Cards    []Card    `json:"cards"`            // NVIDIA GPUs
	Files    []File    `json:"files"`            // of the NVIDIA driver
	Missing  []Missing `json:"missing"`
}

// Software is the software card.
type Software struct {
	Processors int    `json:"processors"` // that execute programs
	Vectors    string `json:"vectors"`    // the instructions that programs run with: AVX2 or plain
}

// Driver is the NVIDIA driver that is loaded.
type Driver struct {
	Release string `json:"release"`
	Tried   bool   `json:"tried"` // the suites ran with it
}

// Card is an NVIDIA GPU.
type Card struct {
	Index      int    `json:"index"` // N of /dev/nvidiaN, -1 without a file
	PCI        string `json:"pci"`   // its address
	Name       string `json:"name"`
	Generation string `json:"generation"`
	Total      uint64 `json:"total"` // bytes of memory
	Free       uint64 `json:"free"`
	Usable     bool   `json:"usable"`        // umbra serve --kind nvidia --index N can serve it
	Why        string `json:"why,omitempty"` // it cannot
}

// File is a device file.
type File struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
	User string `json:"user"` // who has to use it
	May  bool   `json:"may"`  // that user may read and write it
}

// Missing is what keeps cards from being served.
type Missing struct {
	What    string `json:"what"`
	Command string `json:"command"` // that mends it, run by root; or the option of umbra serve
}

// generations are the generations by PCI device id. Only the one that can be served must be complete.
var generations = []struct {
	first, last uint16
	name        string
}{
	{0x06c0, 0x06df, "Fermi"}, {0x1080, 0x10bf, "Fermi"}, {0x1d80, 0x1dff, "Volta"}, {0x1e00, 0x1fff, "Turing"}, {0x2080, 0x20ff, "Ampere"}, {0x2180, 0x21ff, "Turing"},
	{0x2200, 0x22ff, "Ampere"}, {0x2300, 0x23ff, hopper}, {0x2400, 0x25ff, "Ampere"}, {0x2600, 0x28ff, "Ada"}, {0x2900, 0x2fff, "Blackwell"},
}

const hopper = "Hopper"

// Machine is where to look.
type Machine struct {
	Root string // "" is the root folder
	RM   nvrm.System
	User string // who shall use the device files
}

// Probe lists the cards. It opens each one that can be served, to ask for its memory.
func (m Machine) Probe() (r Report, err error) {
	who, err := user.Lookup(m.User)
	if err != nil {
		return r, err
	}
	r = Report{Cards: []Card{}, Files: []File{}, Missing: []Missing{}}
	r.Software = Software{Processors: min(max(1, runtime.NumCPU()-1), engine.MaxProcessors), Vectors: simd.Vectors()}
	r.Cards = m.cards()
	if len(r.Cards) == 0 {
		return r, nil
	}
	release, err := m.RM.Release()
	if err == nil {
		err = nvrm.CheckRelease(release, false)
		r.Driver = &Driver{release, err == nil}
	}
	closed := m.files(&r, who)
	for i := range r.Cards {
		c := &r.Cards[i]
		if c.Why == "" {
			m.ask(c, closed)
		}
	}
	lacks := new(nvrm.Missing)
	if errors.As(err, &lacks) && (r.Driver == nil || slices.ContainsFunc(r.Cards, func(c Card) bool { return c.Usable })) {
		r.Missing = slices.Insert(r.Missing, 0, Missing(*lacks))
	}
	return r, nil
}

// ask asks a card for its memory. Files are closed to the user who shall have them as closed says.
func (m Machine) ask(c *Card, closed map[string]bool) {
	client, err := nvrm.Open(m.RM, c.Index, true)
	if err != nil {
		c.Why = err.Error()
		return
	}
	defer client.Close()
	info, err := client.Info()
	if err != nil {
		c.Why = err.Error()
		return
	}
	c.Name, c.Generation, c.Total, c.Free = info.Name, hopper, info.Total, info.Free
	for _, path := range []string{control, cardFile(c.Index)} {
		if closed[path] {
			c.Why = "no access to " + path
			return
		}
	}
	c.Usable = true
}

const control = "/dev/nvidiactl"

func cardFile(index int) string { return fmt.Sprintf("/dev/nvidia%d", index) }

// files lists the device files of the cards that can be served, and returns those that are absent, or closed to a user.
func (m Machine) files(r *Report, who *user.User) map[string]bool {
	closed := make(map[string]bool)
	paths := []string{control}
	for _, c := range r.Cards {
		if c.Index >= 0 && c.Why == "" {
			paths = append(paths, cardFile(c.Index))
		}
	}
	for _, path := range paths {
		st, err := os.Stat(m.at(path))
		if err != nil {
			closed[path] = true
			if r.Driver != nil {
				r.Missing = append(r.Missing, Missing(*nvrm.NoFile(path)))
			}
			continue
		}
		f := File{Path: path, Mode: strings.TrimPrefix(st.Mode().String(), "D"), User: who.Username, May: may(st, who)}
		if r.Files = append(r.Files, f); !f.May {
			closed[path] = true
			r.Missing = append(r.Missing, Missing(*nvrm.NoAccess(path, who.Username)))
		}
	}
	return closed
}

func (m Machine) at(path string) string { return filepath.Join("/", m.Root, path) }

// text reads a small file, "" if it is not there.
func (m Machine) text(path ...string) string {
	b, err := os.ReadFile(m.at(filepath.Join(path...)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hex reads a number of sysfs.
func (m Machine) hex(path ...string) uint64 {
	n, err := strconv.ParseUint(m.text(path...), 0, 64)
	if err != nil {
		return 0
	}
	return n
}

// cards lists the NVIDIA GPUs: by address those on the PCI bus, and then those that only have a file, as in a
// container.
func (m Machine) cards() []Card {
	list := append([]Card{}, m.onBus()...)
	files, err := filepath.Glob(m.at("/dev/nvidia[0-9]*"))
	if err != nil {
		return list
	}
	for _, f := range files {
		index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(f), "nvidia"))
		if err == nil && !slices.ContainsFunc(list, func(c Card) bool { return c.Index == index }) {
			list = append(list, Card{Index: index, Generation: "unknown"})
		}
	}
	return list
}

func (m Machine) onBus() (list []Card) {
	const bus, display, vendor = "/sys/bus/pci/devices", 3, 0x10de
	devices, err := os.ReadDir(m.at(bus))
	if err != nil {
		return nil
	}
	for _, d := range devices {
		if m.hex(bus, d.Name(), "vendor") != vendor || m.hex(bus, d.Name(), "class")>>16 != display {
			continue
		}
		id := uint16(m.hex(bus, d.Name(), "device"))
		c := Card{Index: -1, PCI: d.Name(), Name: fmt.Sprintf("NVIDIA %04x", id), Generation: "unknown"}
		for _, g := range generations {
			if id >= g.first && id <= g.last {
				c.Generation = g.name
			}
		}
		m.describe(&c)
		bound, err := os.Readlink(m.at(filepath.Join(bus, d.Name(), "driver")))
		switch {
		case err == nil && filepath.Base(bound) == "vfio-pci" && c.Generation == "Fermi":
			c.Why = "a Fermi behind VFIO: not yet"
		case err == nil && filepath.Base(bound) == "vfio-pci":
			c.Why = "behind VFIO: only the NVIDIA driver can serve it"
		case c.Generation != hopper:
			c.Why = "only a Hopper can be served"
		case c.Index < 0:
			c.Why = "the NVIDIA driver does not have it"
		}
		list = append(list, c)
	}
	return list
}

// describe takes a card's name and index from its driver.
func (m Machine) describe(c *Card) {
	for line := range strings.Lines(m.text("/proc/driver/nvidia/gpus", c.PCI, "information")) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "Model":
			c.Name = value
		case "Device Minor":
			if n, err := strconv.Atoi(value); err == nil {
				c.Index = n
			}
		}
	}
}

// may reports whether a user may read and write a file.
func may(st fs.FileInfo, who *user.User) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	groups, err := who.GroupIds()
	if err != nil {
		groups = []string{who.Gid}
	}
	return allowed(st.Mode(), fmt.Sprint(s.Uid), fmt.Sprint(s.Gid), who.Uid, groups)
}

func allowed(mode fs.FileMode, owner, group, user string, groups []string) bool {
	shift := 0
	switch {
	case user == "0":
		return true
	case owner == user:
		shift = 6
	case slices.Contains(groups, group):
		shift = 3
	}
	return mode.Perm()>>shift&6 == 6
}
