package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
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
	optMap: func(g *aggregator.GuestConfig, value string) (err error) {
		g.Map, err = parseMap(value)
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

var mapNames = map[string]homes.Map{"bar1": homes.MapBAR1, "bar3": homes.MapBAR3, "pramin": homes.MapPRAMIN, "rom": homes.MapROM}

// parseMap reads what a guest may map.
func parseMap(value string) (m homes.Map, err error) {
	if value == "none" {
		return homes.MapNone, nil
	}
	for name := range strings.SplitSeq(value, ",") {
		bit, ok := mapNames[name]
		if !ok {
			return 0, fmt.Errorf("%s: %s: must be none, or some of bar1,bar3,pramin,rom", optMap, value)
		}
		m |= bit
	}
	return m, nil
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
