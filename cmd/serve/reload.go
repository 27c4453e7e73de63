package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// stated is what the configuration said when it was read last, except for changes that could not be applied.
type stated struct {
	server options
	gpus   map[string]options
	order  []string // of GPUs
}

// options are values by key.
type options map[string]string

func state(c *config.Config) stated {
	out := stated{optionsOf(c), make(map[string]options), nil}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		out.gpus[g.Name], out.order = optionsOfGPU(g, g), append(out.order, g.Name)
	}
	return out
}

// optionsOfGPU are those of a GPU that was stated so.
func optionsOfGPU(g, stated *config.GPU) options {
	o := optionsOf(g)
	for _, key := range []string{"channels", "guaranteed", "tables"} { // which depend on the other GPUs
		if !stated.Given(key) {
			o[key] = "the default"
		}
	}
	delete(o, "profile") // whose keys the GPU has
	return o
}

func optionsOf(what any) options {
	out := make(options)
	for _, o := range config.Settings(what) {
		out[o.Key] = o.Value
	}
	return out
}

// Reload implements api.Backend. It reads the configuration again, and applies what changed in it since it was
// read last, by the requests of the API. So what requests changed stays, unless the file changed it too. A
// change that is refused is tried again by the next Reload.
func (s *Server) Reload() (out api.Reload, err error) {
	if s.Reread == nil {
		return out, api.Conflict("--config", "", "this server was not started with a configuration file (--config); change it with umbra gpu and umbra sched")
	}
	s.reloading.Lock()
	defer s.reloading.Unlock()
	next, err := s.Reread()
	if err == nil {
		_, err = NewPlan(next, s.Whole != nil, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		return out, refused(err)
	}
	if kind := next.Card.Kind; kind != s.Config.Card.Kind {
		return out, refused(&config.Error{Where: next.Where("card.kind"), Value: kind, Reason: "the card is there as " + s.Config.Card.Kind + "; restart the server to have another"})
	}
	r := reload{Server: s, was: s.stated, now: state(next), out: api.Reload{Steps: []api.ReloadStep{}}}
	r.remove()
	r.server(next)
	for i := range next.GPUs {
		r.gpu(&next.GPUs[i])
	}
	s.stated = r.now
	s.defaults.Store(next)
	refusals := 0
	for _, step := range r.out.Steps {
		if step.Refused != "" {
			refusals++
			s.log.Warn("a change of the configuration was not applied", "what", step.What, "reason", step.Refused)
		}
	}
	s.log.Info("configuration read again", "changes", len(r.out.Steps), "not applied", refusals)
	return r.out, nil
}

// reload is one Reload.
type reload struct {
	*Server
	was, now stated
	out      api.Reload
}

// step notes a change, and reports whether it was applied.
func (r *reload) step(what, done string, err error) bool {
	if err != nil {
		r.out.Steps = append(r.out.Steps, api.ReloadStep{What: what, Refused: err.Error()})
		return false
	}
	r.out.Steps = append(r.out.Steps, api.ReloadStep{What: what, Done: done})
	return true
}

// remove removes GPUs that the configuration no longer has.
func (r *reload) remove() {
	for _, name := range r.was.order {
		if r.was.gpus[name] == nil || r.now.gpus[name] != nil { // never added, or still there
			continue
		}
		_, err := r.Remove(name, false)
		if gone := new(api.Error); errors.As(err, &gone) && gone.Code == http.StatusNotFound {
			continue // by a request
		}
		if !r.step("gpu "+name, "removed", err) {
			r.now.gpus[name], r.now.order = r.was.gpus[name], append(r.now.order, name)
		}
	}
}

// server changes the scheduler. Everything else of the server takes a restart, except for what is only a
// default of GPUs: these differ themselves.
func (r *reload) server(next *config.Config) {
	ofGPUs := func(key string) bool { return strings.HasPrefix(key, "shadow.") || strings.HasPrefix(key, "access.") }
	live := r.compare("", config.Settings(next), r.was.server, r.now.server, ofGPUs, "while the server runs; restart it")
	r.apply("scheduler", live, r.was.server, r.now.server, func(o api.SetRequest) ([]api.Change, error) {
		answer, err := r.SetScheduler(o)
		return answer.Changes, err
	})
}

// gpu adds a GPU, or changes what it says otherwise now.
func (r *reload) gpu(g *config.GPU) {
	what, was, now := "gpu "+g.Name, r.was.gpus[g.Name], r.now.gpus[g.Name]
	inForce := options(nil)
	if e, err := r.find(g.Name); err == nil && r.Shared != nil {
		inForce = optionsOfGPU(e.options.Load(), g)
	}
	if was == nil && maps.Equal(inForce, now) {
		return // a request added it
	}
	if was == nil {
		if _, err := r.add(g.Unfitted()); !r.step(what, "added", err) {
			delete(r.now.gpus, g.Name)
		}
		return
	}
	live := r.compare(what, config.Settings(g), was, now, func(key string) bool { return inForce != nil && inForce[key] == now[key] }, "while the GPU is there; remove the GPU and add it")
	r.apply(what, live, was, now, func(o api.SetRequest) ([]api.Change, error) {
		answer, err := r.Set(g.Name, o)
		return answer.Changes, err
	})
}

// compare returns the live options that differ, and refuses the others, of which now keeps what was.
func (r *reload) compare(what string, settings []api.Setting, was, now options, skip func(key string) bool, why string) (live []string) {
	for _, o := range settings {
		before, known := was[o.Key]
		after, there := now[o.Key]
		switch {
		case before == after || !known || !there || skip(o.Key):
		case o.Live:
			live = append(live, o.Key)
		default:
			r.step(strings.TrimSpace(what+" "+o.Key), "", fmt.Errorf("%s (was %s): cannot be changed %s", after, before, why))
			now[o.Key] = before
		}
	}
	return live
}

// apply changes live options by a request. Now keeps what was of those that are refused.
func (r *reload) apply(what string, live []string, was, now options, set func(api.SetRequest) ([]api.Change, error)) {
	if len(live) == 0 {
		return
	}
	var request []string
	for _, key := range live {
		request = append(request, key+"="+now[key])
	}
	changes, err := set(api.SetRequest{Options: strings.Join(request, ",")})
	if err == nil && len(changes) == 0 { // a request did it before
		return
	}
	if !r.step(what, api.ChangesText(changes), err) {
		for _, key := range live {
			now[key] = was[key]
		}
	}
}
