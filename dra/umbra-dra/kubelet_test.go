package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/umbra-gpu/umbra/dra/plugin"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestKubelet is a kubelet's conversation with the driver.
func TestKubelet(t *testing.T) {
	r := newRig(t)
	require.Equal(t, []string{plugin.Driver, "DRAPlugin"}, []string{r.info.Name, r.info.Type})
	require.Subset(t, r.info.SupportedVersions, []string{drapb.DRAPluginService, drapbv1beta1.DRAPluginService})
	c := r.claim("512Mi", "200", "8")
	second := c.Spec.Devices.Requests[0].DeepCopy()
	second.Name = "second"
	c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, *second)
	require.True(t, r.place(c, node))
	r.cluster.put(c, true)
	first, problem := r.prepare(c)
	require.Empty(t, problem)
	require.Len(t, first, 2)
	placed := c.Status.Allocation.Devices.Results[0]
	require.Equal(t, [][]string{{"gpu"}, {"second"}}, [][]string{first[0].RequestNames, first[1].RequestNames})
	require.Equal(t, []string{placed.Pool, placed.Device, string(*placed.ShareID)}, []string{first[0].PoolName, first[0].DeviceName, first[0].GetShareId()})
	edits := r.edits(c, first)
	require.Equal(t, []string{`UMBRA_QEMU_DEVICE_GPU_0={"driver":"vfio-user-pci","socket":{"path":"/run/umbra/gpu/0/gpu.sock","type":"unix"}}`}, edits.Env)
	require.Equal(t, "/run/umbra/gpu/0", edits.Mounts[0].ContainerPath)
	info, err := os.Stat(edits.Mounts[0].HostPath + "/gpu.sock")
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o666, info.Mode(), "as the DeviceClass has it")
	there, err := r.status()
	require.NoError(t, err)
	require.Len(t, there.GPUs, 2)
	require.Equal(t, []any{uint64(512 << 20), 200, 32}, []any{there.GPUs[0].VRAM, there.GPUs[0].Share.Weight, there.GPUs[0].Channels})
	require.Equal(t, 112, there.Card.ChannelsFree)

	attached, err := client.Dial(edits.Mounts[0].HostPath+"/gpu.sock", nil)
	require.NoError(t, err)
	again, problem := r.prepare(c)
	require.Empty(t, problem)
	require.Equal(t, fmt.Sprint(first), fmt.Sprint(again))
	_, err = attached.Read32(0, 0)
	require.NoError(t, err, "a machine that runs notices nothing")
	require.NoError(t, attached.Close())

	require.Empty(t, r.unprepare(c))
	require.Empty(t, r.unprepare(c), "a second time")
	r.requireNothing(t)
	require.Equal(t, "1", r.cluster.published().ResourceVersion, "GPUs of claims change nothing of what the node has")
}

type (
	claim      = resourceapi.ResourceClaim
	result     = resourceapi.DeviceRequestAllocationResult
	parameters = resourceapi.DeviceAllocationConfiguration
)

// TestWrongClaims prepares what nobody should ask for. Nothing is made for it.
func TestWrongClaims(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		change func(*claim, *result, *parameters)
		want   string
	}{
		"not allocated": {func(c *claim, _ *result, _ *parameters) { c.Status.Allocation = nil }, "not allocated"},
		"replaced": {func(c *claim, _ *result, _ *parameters) {
			other := *c
			other.UID = uuid.NewUUID()
			r.cluster.put(&other, true)
		}, "got replaced"},
		"no UID": {func(c *claim, _ *result, _ *parameters) { c.UID = "../../etc" }, `has the UID "../../etc", which is none`},
		"long name": {func(c *claim, _ *result, _ *parameters) {
			c.Annotations[resourceapi.PodResourceClaimAnnotation] = strings.Repeat("a", 100)
		}, "give the claim a shorter name"},
		"another pool":             {func(_ *claim, r *result, _ *parameters) { r.Pool = "node2" }, "is allocated in pool node2; this node has pool node1"},
		"another card":             {func(_ *claim, r *result, _ *parameters) { r.Device = "card7" }, "is allocated on card card7, which this node does not have; name it in --card"},
		"other driver":             {func(_ *claim, r *result, _ *parameters) { r.Driver = "x.example" }, "has no device of driver umbra-gpu.github.io"},
		"no amounts":               {func(_ *claim, r *result, _ *parameters) { r.ConsumedCapacity = nil }, "the cluster needs the feature DRAConsumableCapacity"},
		"too much":                 {func(_ *claim, r *result, _ *parameters) { r.ConsumedCapacity["vram"] = resource.MustParse("5Gi") }, "5GiB: does not fit"},
		"a claim's own parameters": {func(_ *claim, _ *result, p *parameters) { p.Source = resourceapi.AllocationConfigSourceClaim }, "has parameters of its own; only a DeviceClass may have them"},
		"unknown parameter":        {func(_ *claim, _ *result, p *parameters) { p.Opaque.Parameters.Raw = []byte(`{"rom": "/etc/shadow"}`) }, `rom: "/etc/shadow"; they may have user, group and mode`},
		"a second option": {func(_ *claim, _ *result, p *parameters) {
			p.Opaque.Parameters.Raw = []byte(`{"user": "root,rom=/etc/shadow"}`)
		}, `user: "root,rom=/etc/shadow"; they may have user, group and mode, each a name or a number`},
		"no such user": {func(_ *claim, _ *result, p *parameters) { p.Opaque.Parameters.Raw = []byte(`{"user": "nobody-here"}`) }, "nobody-here"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := r.placed("", "", "")
			r.free(claim)
			claim.Status = *claim.Status.DeepCopy()
			c.change(claim, &claim.Status.Allocation.Devices.Results[0], &claim.Status.Allocation.Devices.Config[0])
			_, problem := r.prepare(claim)
			require.Contains(t, problem, c.want)
			require.Contains(t, problem, claim.Namespace+"/"+claim.Name)
			require.Empty(t, r.unprepare(claim))
			r.requireNothing(t)
		})
	}
}

// TestPlacedFits fills a card with what the scheduler places, first in one size. The server takes all of it.
func TestPlacedFits(t *testing.T) {
	r := newRig(t)
	for _, vram := range []string{"64Mi", "65Mi", "100Mi", "512Mi", "700Mi", "1600Mi"} {
		var placed []*resourceapi.ResourceClaim
		for _, size := range []string{vram, "64Mi"} {
			for {
				c := r.claim(size, "", "")
				if !r.place(c, node) {
					break
				}
				placed = append(placed, c)
				r.cluster.put(c, true)
				_, problem := r.prepare(c)
				require.Empty(t, problem, "claim %d", len(placed))
			}
		}
		there, err := r.status()
		require.NoError(t, err)
		require.NotEmpty(t, placed)
		t.Logf("%s: %d claims; %d MiB and %d channels are left", vram, len(placed), there.Card.VRAMFree>>20, there.Card.ChannelsFree)
		for _, c := range placed {
			require.Empty(t, r.unprepare(c))
			r.delete(c)
		}
		r.requireNothing(t)
	}
}

// TestConnectable measures the time from the kubelet's request until a client reads a register.
func TestConnectable(t *testing.T) {
	r := newRig(t)
	var took []time.Duration
	for range scale.Of(20, 200) {
		c := r.placed("512Mi", "", "")
		began := time.Now()
		devices, problem := r.prepare(c)
		require.Empty(t, problem)
		require.NoError(t, r.attach(c, devices))
		took = append(took, time.Since(began))
		require.Empty(t, r.unprepare(c))
		r.delete(c)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("claim to a register read: median %v, most %v, of %d", median, took[len(took)-1], len(took))
	require.LessOrEqual(t, median, 200*time.Millisecond)
}

// TestExamples holds the manifests against the types of the API. It does not know KubeVirt's.
func TestExamples(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, file := range []string{"driver.yaml", "claim.yaml", "kubevirt.yaml"} {
		for kind, text := range examples(t, file) {
			if kind != "VirtualMachine" {
				_, _, err := strict.Decode(text, nil, nil)
				require.NoError(t, err, kind)
			}
		}
	}
}
