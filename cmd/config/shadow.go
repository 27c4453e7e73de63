package config

import (
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

// syncKey is the key that errors about a pair of policies name.
const syncKey = shadowKeys + "sync"

// checkShadow refuses a pair of policies that do not go together.
func (g *GPU) checkShadow() error {
	if _, err := g.Shadow.Policy(); err != nil {
		return &Error{Where: g.Where(syncKey), Reason: err.Error()}
	}
	return nil
}
