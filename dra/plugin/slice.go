package plugin

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// The capacities of a card, of which each claim consumes some.
const (
	capVRAM     resourceapi.QualifiedName = "vram"     // bytes for guests' drivers
	capWeight   resourceapi.QualifiedName = "weight"   // a claim of w has at least w/MostWeight of the card's time
	capChannels resourceapi.QualifiedName = "channels" // that a claim can count on
)

const (
	mib = int64(1) << 20

	cardChannels  = 128
	leastChannels = 4
	mostGuests    = cardChannels / leastChannels // which is also the most that a server has
	defaultWeight = 100
	// MostWeight is the sum of the weights on a card: each guest has at least its even share unless a claim asks for less.
	MostWeight = mostGuests * defaultWeight
)

// chips are the sizes of memory that a GPU of a chip may have.
var chips = map[string]struct{ least, unit, most int64 }{
	"gf100": {64 * mib, mib, 6 << 10 * mib},
	"gh100": {4 << 10 * mib, 4 << 10 * mib, 60 << 10 * mib},
}

// device describes a card, on which the prepared GPUs have some channels each. It is false if no GPU fits onto it.
func (p *Plugin) device(card string, s *api.Status, prepared map[string]int64) (resourceapi.Device, bool) {
	chip := chips[p.Chip]
	// GPUs that others added are none of the scheduler's business, and what they have is not its to give.
	free, channels := int64(s.Card.VRAMFree), int64(s.Card.ChannelsFree)
	for _, g := range s.GPUs {
		if owner(g.Name) != "" {
			free += int64(g.VRAM + g.Tables)
			channels += prepared[g.Name]
		}
	}
	vram := room(free, chip.least) / chip.unit * chip.unit
	if vram < chip.least+chip.unit || channels <= leastChannels {
		return resourceapi.Device{}, false
	}
	shared := true
	return resourceapi.Device{
		Name:                     card,
		AllowMultipleAllocations: &shared,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"chip": {StringValue: &p.Chip},
			"kind": {StringValue: &s.Card.Kind},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			capVRAM:     consumable(vram, resource.BinarySI, max(chip.least, min(vram, 256*mib)/chip.unit*chip.unit), chip.least, min(vram, chip.most), chip.unit),
			capWeight:   consumable(MostWeight, resource.DecimalSI, defaultWeight, 1, MostWeight, 1),
			capChannels: consumable(channels, resource.DecimalSI, leastChannels, leastChannels, channels, 1),
		},
	}, true
}

// room is how much of a card's memory claims can have in whatever sizes: a GPU's page tables and what its chip
// reserves take an eighth of its memory at most, and 80 MiB at most.
func room(free, least int64) int64 {
	return max(free/9*8, free-min(mostGuests, free/least)*80*mib)
}

func consumable(value int64, format resource.Format, usual, least, most, step int64) resourceapi.DeviceCapacity {
	quantity := func(n int64) *resource.Quantity { return resource.NewQuantity(n, format) }
	return resourceapi.DeviceCapacity{Value: *quantity(value), RequestPolicy: &resourceapi.CapacityRequestPolicy{
		Default:    quantity(usual),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity(least), Max: quantity(most), Step: quantity(step)},
	}}
}

// resources are what the node publishes.
func (p *Plugin) resources() *resourceslice.DriverResources {
	s := resourceslice.Slice{}
	for _, card := range slices.Sorted(maps.Keys(p.devices)) {
		s.Devices = append(s.Devices, p.devices[card])
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{p.Node: {Slices: []resourceslice.Slice{s}}}}
}
