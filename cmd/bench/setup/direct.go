package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// direct are options that the configuration has no key for yet: what they do to
// the share of a virtual GPU.
var direct = map[string]func(g *aggregator.GuestConfig, value string) error{
	optSync: func(g *aggregator.GuestConfig, value string) (err error) {
		g.Shadow.Sync, err = named[shadowpt.Sync](optSync, shadowpt.Syncs[:], value)
		return err
	},
	optScan: func(g *aggregator.GuestConfig, value string) (err error) {
		g.Shadow.Scan, err = named[shadowpt.Scan](optScan, shadowpt.Scans[:], value)
		return err
	},
}

// named is the place of a value among its names.
func named[T ~uint8](option string, names []string, value string) (T, error) {
	i := slices.Index(names, value)
	if i < 0 {
		return 0, fmt.Errorf("%s: %s: must be %s", option, value, strings.Join(names, " or "))
	}
	return T(i), nil
}

// apply sets the row's direct options.
func (r *Row) apply(g *aggregator.GuestConfig) error {
	g.Shadow = shadowpt.DefaultPolicy
	for k, v := range r.GPU {
		if set := direct[k]; set != nil {
			if err := set(g, v); err != nil {
				return err
			}
		}
	}
	return nil
}
