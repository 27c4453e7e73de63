// Package plugin is a driver for Kubernetes' dynamic resource allocation: it gives virtual GPUs of Umbra to pods.
//
// The scheduler shares a card out: a node publishes each card as a device with capacities that claims consume
// (slice.go). For a claim the kubelet asks for, the plugin adds GPUs at the card's server by its control API, and
// writes a CDI file, by which the container runtime mounts the sockets' folders (claim.go, prepare.go, cdi.go).
//
// The plugin has no state of its own: the names of a GPU, its folder and its file follow from the claim's UID, so
// each step may be repeated after a crash of the plugin or of a server (mend.go).
package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// Driver is the driver's name in the resource API.
const Driver = "umbra-gpu.github.io"

// Config says where things are on a node.
type Config struct {
	Node    string            // its name, and that of its pool of devices
	Cards   map[string]string // the control socket of each card's server, by the name of the card's device
	Chip    string            // of the GPUs: gf100 or gh100
	Sockets string            // folder of the GPUs' sockets; it is root's, and what is made in it gets the servers' group
	CDI     string            // folder where the container runtime finds CDI files
}

// Plugin is the driver on one node.
type Plugin struct {
	Config
	fatal func(error)

	devices map[string]resourceapi.Device // as published; Mend's

	// mu guards the rest. It is not held while a server is asked: who adds or removes GPUs of a claim has taken the claim.
	mu      sync.Mutex
	taken   sets.Set[types.UID]
	free    *sync.Cond // of mu, tells that a claim is not taken any more
	changes uint64     // counts requests of the kubelet that ended
}

// New makes a Plugin. It calls fatal, maybe several times, when it cannot go on.
func New(c Config, fatal func(error)) *Plugin {
	p := &Plugin{Config: c, fatal: fatal, taken: sets.New[types.UID](), devices: make(map[string]resourceapi.Device)}
	p.free = sync.NewCond(&p.mu)
	return p
}

// take waits until nobody else changes a claim, and keeps others from it.
func (p *Plugin) take(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.taken.Has(claim) {
		p.free.Wait()
	}
	p.taken.Insert(claim)
}

// give ends take, after so many requests of the kubelet.
func (p *Plugin) give(claim types.UID, requests uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.Delete(claim)
	p.changes += requests
	p.free.Broadcast()
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, c := range claims {
		p.take(c.UID)
		devices, err := p.prepare(ctx, c)
		p.give(c.UID, 1)
		if err != nil {
			err = fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		out[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return out, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := make(map[types.UID]error)
	for _, c := range claims {
		p.take(c.UID)
		out[c.UID] = p.unprepare(ctx, c.UID)
		p.give(c.UID, 1)
	}
	return out, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (p *Plugin) HandleError(ctx context.Context, err error, msg string) {
	utilruntime.HandleErrorWithContext(ctx, err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (p *Plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
