package up

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testReleases pretends that later releases have installed their CustomResourceDefinitions. Those of the next release, which go with this one, are kept.
// With others no part is ready, and nobody leads, until they are gone.
func (p place) testReleases() {
	hub := p.administer(local.HubName)
	p.setLevel("2", "1")
	if err := crds.Install(p.Context(), hub); err != nil {
		p.Errorf("installing the definitions of this release, which go with those of the next one: %v", err)
	}
	if level := p.run("kubectl", "--context", "hub", "get", "crd", crds.Marker, "-o", `jsonpath={.metadata.annotations.cellplane\.io/level}`); level != "2" {
		p.Errorf("the definitions of the next release were replaced: the level is %q", level)
	}
	p.readiness("all parts are ready with the definitions of the next release", "")

	p.setLevel("3", "2")
	const refusal = "is of another release: its CustomResourceDefinitions are of level 3, for parts of level 2 and later, and this release has level 1: run a newer release"
	p.readiness("no part is ready with those of a later release", refusal)
	testenv.Eventually(p.T, "the hub manager does not lead", func(ctx context.Context) (bool, error) {
		body, err := p.probe(ctx, "hub-manager", "/replication")
		return strings.Contains(body, `"working":false`), errors.Join(err, errors.New(body))
	})
	if err := crds.Install(p.Context(), hub); err == nil || !strings.Contains(err.Error(), "are of level 3") {
		p.Errorf("installing the definitions of this release over those of a later one: %v", err)
	}
	if output, _ := p.command(p.Context(), "doctor", "-o", "json").CombinedOutput(); !strings.Contains(string(output), "API of hub") || !strings.Contains(string(output), "run a newer release") {
		p.Errorf("the doctor says\n%s", output)
	}

	p.setLevel("1", "1")
	p.readiness("all parts are ready again", "")
	testenv.Eventually(p.T, "the hub manager leads again", func(ctx context.Context) (bool, error) {
		body, err := p.probe(ctx, "hub-manager", "/replication")
		return strings.Contains(body, `"working":true`), errors.Join(err, errors.New(body))
	})
}

// administer returns an administrator's configuration for a control plane.
func (p place) administer(plane string) *rest.Config {
	p.Helper()
	kubeconfig, err := fleet.ReadKubeconfig(local.KubeconfigFile(p.dir), plane)
	if err != nil {
		p.Fatal(err)
	}
	return kubeconfig.Config()
}

// setLevel changes the level of the definitions on the hub and in the cell. The hub manager may do the latter, too.
func (p place) setLevel(level, serves string) {
	p.Helper()
	for _, plane := range []string{"hub", "cell-a"} {
		p.run("kubectl", "--context", plane, "annotate", "--overwrite", "crd", crds.Marker, "cellplane.io/level="+level, "cellplane.io/serves-level="+serves)
	}
}

// readiness waits until all parts are ready, or not ready for a reason.
func (p place) readiness(what, reason string) {
	p.Helper()
	for _, part := range []string{"gateway", "cluster-gateway", "hub-manager", "hub/engine", "cell-a/engine"} {
		testenv.Eventually(p.T, what+": "+part, func(ctx context.Context) (bool, error) {
			_, err := p.probe(ctx, part, "/readyz?verbose")
			if reason == "" {
				return err == nil, err
			}
			if part == "gateway" { // its log has the reason, which API servers withhold in answers
				return err != nil && strings.Contains(err.Error(), "[-]release"), err
			}
			return err != nil && strings.Contains(err.Error(), reason), err
		})
	}
}

// probe reads a document of a part that needs no identity. An answer other than 200 is an error with the body.
func (p place) probe(ctx context.Context, part, path string) (string, error) {
	scheme := "http"
	if strings.HasSuffix(part, "gateway") {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, p.ports().PartPorts[part], path), nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // only what anybody may read
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}
