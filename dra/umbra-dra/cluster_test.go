package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// cluster is as much of an API server as the driver uses. It outlives drivers.
type cluster struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string]any // by path
	version int
	config  string // file that says how to reach it
}

const node, resources = "node1", "/apis/resource.k8s.io/v1/"

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, objects: map[string]any{
		"/api/v1/nodes/" + node: &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: node, UID: "node-uid"}},
	}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	c.config = filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(c.config, fmt.Appendf(nil, `{"clusters": [{"name": "c", "cluster": {"server": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`, s.URL), 0o600))
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the driver was killed
	}
	if q := r.URL.Query(); q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done() // only the driver changes its slices
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	code, answer := http.StatusOK, c.objects[r.URL.Path]
	kind, isList := map[string]string{resources + "resourceclaims": "ResourceClaimList", resources + "resourceslices": "ResourceSliceList"}[r.URL.Path]
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "": // as an older server answers: the client lists instead
		code, answer = http.StatusUnprocessableEntity, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid}
	case len(body) > 0:
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // of JSON or protobuf
		s, is := object.(*resourceapi.ResourceSlice)
		if !is {
			c.t.Errorf("the driver writes %q: %v", body, err)
			return
		}
		c.version++
		if s.Name == "" {
			s.Name = s.GenerateName + "slice"
		}
		s.UID, s.ResourceVersion = "slice-uid", fmt.Sprint(c.version)
		c.objects[resources+"resourceslices/"+node], answer = s, s
	case isList:
		items := []any{}
		for path, object := range c.objects {
			if strings.Contains(path, "/"+filepath.Base(r.URL.Path)+"/") {
				items = append(items, object)
			}
		}
		answer = map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": map[string]string{"resourceVersion": fmt.Sprint(c.version)}, "items": items}
	case answer == nil:
		code, answer = http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // the client sees a broken answer
}

// put stores a claim, or removes it.
func (c *cluster) put(claim *resourceapi.ResourceClaim, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := resources + "namespaces/" + claim.Namespace + "/resourceclaims/" + claim.Name
	if c.objects[path] = claim; !there {
		delete(c.objects, path)
	}
}

// published is the slice of the node, nil if it has none yet.
func (c *cluster) published() *resourceapi.ResourceSlice {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, _ := c.objects[resources+"resourceslices/"+node].(*resourceapi.ResourceSlice)
	return s
}
