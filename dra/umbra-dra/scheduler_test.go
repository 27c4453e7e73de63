package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/yaml"

	"github.com/umbra-gpu/umbra/dra/plugin"
)

// scheduler places claims as the cluster's does: with its allocator, and with the class and the template that examples has.
type scheduler struct {
	t        *testing.T
	slices   []*resourceapi.ResourceSlice
	class    resourceapi.DeviceClass
	template resourceapi.ResourceClaimTemplate
	has      sets.Set[*resourceapi.ResourceClaim] // claims that were placed
	state    *structured.AllocatedState           // what they have together; nil if that changed
	cache    *cel.Cache
	claims   int
}

func newScheduler(t *testing.T, slices ...*resourceapi.ResourceSlice) *scheduler {
	s := &scheduler{t: t, slices: slices, has: sets.New[*resourceapi.ResourceClaim](), cache: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})}
	manifests := examples(t, "claim.yaml")
	require.NoError(t, yaml.UnmarshalStrict(manifests["DeviceClass"], &s.class))
	require.NoError(t, yaml.UnmarshalStrict(manifests["ResourceClaimTemplate"], &s.template))
	return s
}

// examples are the manifests of a file by kind.
func examples(t *testing.T, file string) map[string][]byte {
	data, err := os.ReadFile("../examples/" + file)
	require.NoError(t, err)
	out := make(map[string][]byte)
	for _, text := range strings.Split(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(text), &kind))
		out[kind.Kind] = []byte(text)
	}
	return out
}

func (s *scheduler) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{&s.class}, nil
}
func (s *scheduler) Get(string) (*resourceapi.DeviceClass, error) { return &s.class, nil }

// claim makes a claim of the template with other amounts: vram, weight and channels, none where "".
func (s *scheduler) claim(vram, weight, channels string) *resourceapi.ResourceClaim {
	s.claims++
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("machine-gpu-", s.claims), UID: uuid.NewUUID(), Annotations: map[string]string{resourceapi.PodResourceClaimAnnotation: "gpu"}},
		Spec:       *s.template.Spec.Spec.DeepCopy(),
	}
	amounts := make(map[resourceapi.QualifiedName]resource.Quantity)
	for name, q := range map[resourceapi.QualifiedName]string{"vram": vram, "weight": weight, "channels": channels} {
		if q != "" {
			amounts[name] = resource.MustParse(q)
		}
	}
	exactly := c.Spec.Devices.Requests[0].Exactly
	exactly.Capacity.Requests = amounts
	exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1 // the API server's defaults
	return c
}

// place allocates a claim on a node, or says that it does not fit. As the scheduler, it counts what all claims have.
func (s *scheduler) place(c *resourceapi.ResourceClaim, node string) bool {
	if s.state == nil {
		s.state = &structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
		for of := range s.has {
			for _, r := range of.Status.Allocation.Devices.Results {
				id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
				s.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
				s.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			}
		}
	}
	a, err := structured.NewAllocator(s.t.Context(), structured.Features{ConsumableCapacity: true}, *s.state, s, s.slices, s.cache)
	require.NoError(s.t, err)
	results, err := a.Allocate(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{c})
	require.NoError(s.t, err)
	if results != nil {
		c.Status.Allocation = &results[0]
		s.has.Insert(c)
		s.state = nil
	}
	return results != nil
}

// free takes back what a claim has.
func (s *scheduler) free(c *resourceapi.ResourceClaim) {
	s.has.Delete(c)
	s.state = nil
}

// TestHundredHosts places claims on a hundred hosts. A host refuses a claim exactly if it has too little left of
// something, by our own count.
func TestHundredHosts(t *testing.T) {
	published := newRig(t).cluster.published()
	const hosts, vram, most = 100, 24 << 30, 6 << 30
	var all []*resourceapi.ResourceSlice
	var left [hosts][3]int64 // MiB, weight, channels
	for i := range hosts {
		s := published.DeepCopy()
		s.Name, s.Spec.NodeName, s.Spec.Pool.Name = fmt.Sprint("slice", i), new(fmt.Sprint("host", i)), fmt.Sprint("host", i)
		has := s.Spec.Devices[0].Capacity["vram"]
		has.Value, has.RequestPolicy.ValidRange.Max = *resource.NewQuantity(vram, resource.BinarySI), resource.NewQuantity(most, resource.BinarySI)
		s.Spec.Devices[0].Capacity["vram"] = has
		all, left[i] = append(all, s), [3]int64{vram >> 20, plugin.MostWeight, 128}
	}
	s := newScheduler(t, all...)
	draw := rand.New(rand.NewPCG(1, 2))
	refused, homeless := 0, 0
	for range 700 {
		want := [3]int64{64 + draw.Int64N(most>>20-64), 1 + draw.Int64N(1600), 4 + draw.Int64N(60)}
		c := s.claim(fmt.Sprintf("%dMi", want[0]), fmt.Sprint(want[1]), fmt.Sprint(want[2]))
		found := false
		for try := 0; try < 8 && !found; try++ {
			i := draw.IntN(hosts)
			l := &left[i]
			fits := l[0] >= want[0] && l[1] >= want[1] && l[2] >= want[2]
			if found = s.place(c, fmt.Sprint("host", i)); found != fits {
				t.Fatalf("host %d has %v left of a claim's %v: placed is %v", i, *l, want, found)
			}
			if found {
				*l = [3]int64{l[0] - want[0], l[1] - want[1], l[2] - want[2]}
			} else {
				refused++
			}
		}
		if !found {
			homeless++
		}
	}
	require.NotZero(t, homeless)
	t.Logf("%d claims on %d hosts, which refused %d times; %d claims found none in eight", len(s.has), hosts, refused, homeless)
}
