package probe

import (
	"fmt"
	"strings"
)

// Text writes d for a person.
func (d *Device) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "vfio-user %s, capabilities %s\n", d.Version, orNone(string(d.Capabilities)))
	fmt.Fprintf(&b, "device: PCI %v, reset %v\n\nRegions\n", yes(d.PCI), yes(d.Reset))
	for _, r := range d.Regions {
		fmt.Fprintf(&b, "  %d %-13s %10s  %s\n", r.Index, r.Name, Size(r.Size), rights(r))
		for _, a := range r.Areas {
			fmt.Fprintf(&b, "      mappable %#x-%#x\n", a.Offset, a.Offset+a.Size-1)
		}
	}
	b.WriteString("\nInterrupts\n")
	for _, q := range d.IRQs {
		fmt.Fprintf(&b, "  %d %-5s %4d  %s\n", q.Index, q.Name, q.Count, strings.Join(q.Flags, " "))
	}
	if d.Config != nil {
		b.WriteString("\nConfiguration space\n" + d.Config.Text())
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func rights(r Region) string {
	var out []string
	for _, x := range []struct {
		is   bool
		name string
	}{{r.Read, "read"}, {r.Write, "write"}, {r.Mmap, "mmap"}} {
		if x.is {
			out = append(out, x.name)
		}
	}
	if len(out) == 0 {
		return "neither read nor write, the server says"
	}
	return strings.Join(out, " ")
}

// Size is n as people and lspci write it.
func Size(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "T"}, {30, "G"}, {20, "M"}, {10, "K"}} {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d%s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d", n)
}
