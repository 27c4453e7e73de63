package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/umbra-gpu/umbra/cmd/config"
)

// gpu is one virtual GPU of a claim. What is in JSON is all that it takes to add it again.
type gpu struct {
	Name     string `json:"name"`     // at the server, of its folder, and in CDI
	Card     string `json:"card"`     // device of which it is a part
	Socket   string `json:"socket"`   // on the host
	Channels int64  `json:"channels"` // that it can count on
	Options  string `json:"options"`  // as the control API takes them

	request  string
	share    *types.UID
	variable string // of the environment, with the argument for QEMU
	inside   string // the socket in the container
}

const maxSocketPath = 107 // of a UNIX socket, in the container too

// ContainerSocket is the socket of a GPU in a container: of a claim, by the name that the pod gives it, and by the
// GPU's index among those that this driver gives to the claim.
func ContainerSocket(claim string, index int) string {
	return fmt.Sprintf("/run/umbra/%s/%d/gpu.sock", claim, index)
}

// QEMUDevice is the value of QEMU's option -device that attaches the GPU at a socket, as umbra gpu attach prints it.
func QEMUDevice(socket string) string {
	at, _ := json.Marshal(socket) // strings always encode
	return fmt.Sprintf(`{"driver":"vfio-user-pci","socket":{"path":%s,"type":"unix"}}`, at)
}

var names = regexp.MustCompile(`^dra-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-`)

// owner is the UID of the claim whose GPU, folder or file has this name, or "".
func owner(name string) types.UID {
	if m := names.FindStringSubmatch(name); m != nil {
		return types.UID(m[1])
	}
	return ""
}

var variableLetters = regexp.MustCompile(`[^A-Z0-9]`)

// gpusOf lists the GPUs that were allocated to a claim on this node.
func (p *Plugin) gpusOf(claim *resourceapi.ResourceClaim) (out []gpu, err error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("is not allocated; only the scheduler's choice can be prepared")
	}
	inPod := cmp.Or(claim.Annotations[resourceapi.PodResourceClaimAnnotation], claim.Name)
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != Driver {
			continue
		}
		i := len(out)
		g := gpu{
			Name: fmt.Sprintf("dra-%s-%d", claim.UID, i), Card: r.Device, request: r.Request, share: r.ShareID,
			inside:   ContainerSocket(inPod, i),
			variable: fmt.Sprintf("UMBRA_QEMU_DEVICE_%s_%d", variableLetters.ReplaceAllString(strings.ToUpper(inPod), "_"), i),
		}
		g.Socket = filepath.Join(p.Sockets, g.Name, filepath.Base(g.inside))
		switch {
		case r.Pool != p.Node:
			return nil, fmt.Errorf("is allocated in pool %s; this node has pool %s", r.Pool, p.Node)
		case p.Cards[r.Device] == "":
			return nil, fmt.Errorf("is allocated on card %s, which this node does not have; name it in --card", r.Device)
		case owner(g.Name) != claim.UID:
			return nil, fmt.Errorf("has the UID %q, which is none", claim.UID)
		case len(g.inside) > maxSocketPath:
			return nil, fmt.Errorf("the socket %s in the container has %d bytes, and the kernel takes %d; give the claim a shorter name", g.inside, len(g.inside), maxSocketPath)
		}
		access, err := accessOf(resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, r))
		if err != nil {
			return nil, err
		}
		if err := p.setOptions(&g, r.ConsumedCapacity, access); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("has no device of driver %s", Driver)
	}
	return out, nil
}

// setOptions makes the options of a GPU of what the scheduler counted for it, and of the class's.
func (p *Plugin) setOptions(g *gpu, has map[resourceapi.QualifiedName]resource.Quantity, access string) error {
	amount := func(of resourceapi.QualifiedName) int64 { q := has[of]; return q.Value() }
	vram, weight := amount(capVRAM), amount(capWeight)
	g.Channels = amount(capChannels)
	if vram == 0 || weight == 0 || g.Channels == 0 {
		return fmt.Errorf("is allocated without amounts of %s, %s and %s; the cluster needs the feature DRAConsumableCapacity, which Kubernetes has since 1.36", capVRAM, capWeight, capChannels)
	}
	g.Options = fmt.Sprintf("name=%s,socket=%s,chip=%s,vram=%dMiB,weight=%d,guaranteed=%d,channels=%d%s",
		g.Name, g.Socket, p.Chip, vram/mib, weight, g.Channels, max(g.Channels, config.MostChannels), access)
	return nil
}

// accessValue has no character that would begin another option.
var accessValue = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// accessOf makes options of the parameters of a DeviceClass, which say who may connect to the sockets: user, group
// and mode. They are the administrator's: a claim may not have any.
func accessOf(configs []resourceapi.DeviceAllocationConfiguration) (out string, err error) {
	for _, c := range configs {
		if c.Opaque.Driver != Driver {
			continue
		}
		if c.Source != resourceapi.AllocationConfigSourceClass {
			return "", errors.New("has parameters of its own; only a DeviceClass may have them")
		}
		var of map[string]string
		if err := json.Unmarshal(c.Opaque.Parameters.Raw, &of); err != nil {
			return "", fmt.Errorf("parameters of the DeviceClass: %s: %w; they may have user, group and mode", c.Opaque.Parameters.Raw, err)
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !slices.Contains([]string{"user", "group", "mode"}, key) || !accessValue.MatchString(of[key]) {
				return "", fmt.Errorf("parameters of the DeviceClass: %s: %q; they may have user, group and mode, each a name or a number", key, of[key])
			}
			out += fmt.Sprintf(",access.%s=%s", key, of[key])
		}
	}
	return out, nil
}
