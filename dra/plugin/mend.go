package plugin

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// How long a server may take to answer, and to add or remove a GPU.
const (
	patience       = 2 * time.Second
	changePatience = 10 * time.Second
)

// Sweep removes what no claim of the list owns. Nothing may be prepared before it ends. Its error says what is left: the
// GPUs of cards that do not answer.
func (p *Plugin) Sweep(ctx context.Context, claims []resourceapi.ResourceClaim) error {
	owned := sets.New[types.UID]("")
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == Driver && r.Pool == p.Node {
				owned.Insert(c.UID)
			}
		}
	}
	found := sets.New[types.UID]()
	paths, err := p.paths("*")
	errs := []error{err}
	for _, path := range paths {
		found.Insert(owner(filepath.Base(path)))
	}
	for card := range p.Cards {
		gpus, err := p.gpus(ctx, card)
		errs = append(errs, err)
		for _, g := range gpus {
			found.Insert(owner(g.Name))
		}
	}
	for uid := range found.Difference(owned) {
		errs = append(errs, p.unprepare(ctx, uid))
	}
	return errors.Join(errs...)
}

// Mend adds the prepared GPUs again that a server has lost because it started anew: the kubelet would ask for them
// only with the next pod, and this one's containers may restart. It returns the node's resources if they changed, else nil;
// also nil while a claim's file cannot be read, and if the kubelet asked for something meanwhile. It is called by one
// goroutine.
func (p *Plugin) Mend(ctx context.Context) (*resourceslice.DriverResources, error) {
	p.mu.Lock()
	changes := p.changes
	p.mu.Unlock()
	gpus, unread := p.prepared()
	errs := []error{unread}
	channels := make(map[string]int64)
	for _, g := range gpus {
		channels[g.Name] = g.Channels
	}
	devices := maps.Clone(p.devices)
	var lost []gpu
	for card := range p.Cards {
		s, err := p.status(ctx, card)
		if err != nil { // the card stays, and what is prepared there fails until its server is back
			errs = append(errs, err)
			continue
		}
		delete(devices, card)
		if d, fits := p.device(card, &s, channels); fits {
			devices[card] = d
		}
		there := sets.New[string]()
		for _, g := range s.GPUs {
			there.Insert(g.Name)
		}
		for _, g := range gpus {
			if g.Card == card && !there.Has(g.Name) {
				lost = append(lost, g)
			}
		}
	}
	p.mu.Lock()
	asked := p.changes != changes || p.taken.Len() > 0
	p.mu.Unlock()
	for _, g := range lost {
		errs = append(errs, p.addAgain(ctx, g))
	}
	// What a file has of a card is unknown if it cannot be read, or was made or removed meanwhile: a published size might be
	// too small.
	if unread != nil || asked || equality.Semantic.DeepEqual(devices, p.devices) {
		return nil, errors.Join(errs...)
	}
	p.devices = devices
	return p.resources(), errors.Join(errs...)
}

// addAgain adds a GPU of a claim, unless the claim was unprepared meanwhile.
func (p *Plugin) addAgain(ctx context.Context, g gpu) error {
	claim := owner(g.Name)
	p.take(claim)
	defer p.give(claim, 0)
	if _, err := os.Stat(p.cdiPath(string(claim))); err != nil {
		return nil
	}
	return p.add(ctx, &g)
}
