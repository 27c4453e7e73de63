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

	mu      sync.Mutex // one request of the kubelet or Mend at a time
	devices map[string]resourceapi.Device
}

// New makes a Plugin. It calls fatal, maybe several times, when it cannot go on.
func New(c Config, fatal func(error)) *Plugin {
	return &Plugin{Config: c, fatal: fatal, devices: make(map[string]resourceapi.Device)}
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, c := range claims {
		devices, err := p.prepare(ctx, c)
		if err != nil {
			err = fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		out[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return out, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]error)
	for _, c := range claims {
		out[c.UID] = p.unprepare(ctx, c.UID)
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
