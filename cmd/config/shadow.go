package config

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Shadow is how the page tables of a virtual GPU's guest become the card's.
type Shadow struct {
	Sync string `yaml:"sync" placeholder:"WHEN" def:"lazy" live:"" oneof:"eager,flush,lazy" help:"When a guest's page tables become the card's. Eager: at each entry that is written; flush: at each TLB invalidate; lazy: before the next work that could see them."`
	Scan string `yaml:"scan" placeholder:"HOW" def:"incremental" live:"" oneof:"full,incremental" help:"How changes in page tables are found. Full: by reading all of them; incremental: by what was written. Eager requires incremental."`
}

// shadowKeys begin the keys of its options.
const shadowKeys = "shadow."

// Policy is what package shadowpt calls it, and why that cannot be.
func (s *Shadow) Policy() (shadowpt.Policy, error) {
	p := shadowpt.Policy{
		Sync: shadowpt.Sync(slices.Index(shadowpt.Syncs[:], s.Sync)), Scan: shadowpt.Scan(slices.Index(shadowpt.Scans[:], s.Scan)),
	}
	return p, p.Check()
}

// ShadowOf is the reverse of Policy.
func ShadowOf(p shadowpt.Policy) Shadow {
	return Shadow{Sync: p.Sync.String(), Scan: p.Scan.String()}
}

// Keys of the two that do not go together whatever they are.
const (
	syncKey = shadowKeys + "sync"
	scanKey = shadowKeys + "scan"
)

// checkShadow refuses what is possible alone but not together. Of the two it names the one
// that was said for this GPU, and who said the other.
func (g *GPU) checkShadow(said func(key string) string) error {
	p, err := g.Shadow.Policy()
	if err == nil {
		return nil
	}
	key, value := syncKey, g.Shadow.Sync
	other, stands := scanKey, g.Shadow.Scan
	if g.has(scanKey) && !g.has(syncKey) {
		key, value, other, stands = other, stands, key, value
	}
	var with []string // values of the other one that the first goes with
	for _, c := range shadowpt.Policies() {
		switch {
		case c.Sync == p.Sync && key == syncKey:
			with = append(with, c.Scan.String())
		case c.Scan == p.Scan && key == scanKey:
			with = append(with, c.Sync.String())
		}
	}
	where := g.Where(key)
	if from := said(key); !g.has(key) && from != byDefault {
		where = from // neither was said for this GPU
	}
	if slices.Contains(with, stands) {
		return &Error{Where: where, Reason: err.Error()} // it is about something else
	}
	return &Error{Where: where, Reason: fmt.Sprintf("%s does not go with %s=%s (%s); set %[2]s=%[5]s too", value, other, stands, said(other), either(with))}
}
