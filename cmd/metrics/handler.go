package metrics

import (
	"bytes"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// fresh is how long a text is given to everybody who asks. To read every counter takes processor time from guests'
// traps, which a reader that asks without end must not multiply.
const fresh = 500 * time.Millisecond

// textFormat is the only format, which every Prometheus reads. Without compression, which takes longer than to read the
// counters.
var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// handler answers with a text that is at most fresh old.
type handler struct {
	all prometheus.Gatherer
	log *slog.Logger

	mu   sync.Mutex // held while the counters are read, once for all who wait
	text []byte     // is replaced, never changed
	err  error      // in its place
	read time.Time
}

// Handler answers Prometheus with the numbers of a server, of its process and of its runtime.
func Handler(report func() (api.Report, error), version string, log *slog.Logger) http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(NewCollector(report), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "umbra_build_info", Help: "The version of the server, as a label.", ConstLabels: prometheus.Labels{"version": version}},
			func() float64 { return 1 }))
	return &handler{all: all, log: log}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := h.latest()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(textFormat))
	_, _ = w.Write(text) // the reader may be gone
}

func (h *handler) latest() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.read.IsZero() && time.Since(h.read) < fresh {
		return h.text, h.err
	}
	if h.text, h.err = h.gather(); h.err != nil {
		h.log.Warn("cannot gather the numbers", "error", h.err)
	}
	h.read = time.Now()
	return h.text, h.err
}

func (h *handler) gather() ([]byte, error) {
	families, err := h.all.Gather()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, len(h.text)+len(h.text)/8))
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
