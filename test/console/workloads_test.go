package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// visit shows another page of the console.
func (p *tab) visit(hash string) {
	p.t.Helper()
	evaluate[any](p, fmt.Sprintf("void (location.hash = %s)", quote(hash)))
}

// The pods of all members are listed and filtered, their logs are followed, and a command runs in a container.
func (f *federation) testPods(t *testing.T, browser context.Context) {
	f.run(t, "kubectl", "apply", "-f", "testdata/shop.yaml")
	p := open(t, browser, f.link(t))
	p.shows("The federation")
	p.visit("#/pods?namespace=shop")
	rows := "[...document.querySelectorAll('.tall [role=row]')]"
	p.until("six pods run in both members", rows+`.filter((r) => r.innerText.includes("Running")).length === 6 && ["member1", "member2"].every((m) => `+rows+`.some((r) => r.innerText.includes(m)))`)
	p.pictures("pods")
	p.visit("#/pods?namespace=shop&cluster=member2")
	p.until("only those of member2 are listed", rows+".length === 3")
	p.visit("#/pods?namespace=shop&phase=Failed")
	p.shows("No pods found")
	p.click("button", "Show all")

	p.visit("#/pods?namespace=shop&cluster=member2")
	p.until("only those of member2 are listed", rows+".length === 3")
	p.click("a.name", "web-")
	p.shows("Containers", "north.example/web:1", "Conditions")
	p.pictures("pod")
	p.click(".tabs a", "Logs")
	p.shows("follows")
	log, err := os.OpenFile(filepath.Join(f.dir, "member2", "pods.log"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.WriteString(time.Now().UTC().Format(time.RFC3339Nano) + " stdout F written \x1b[31mwhile the page is open\x1b[0m <b>&amp;\n"); err != nil {
		t.Fatal(err)
	}
	p.shows("written while the page is open <b>&amp;")
	p.pictures("logs")

	p.click(".tabs a", "Shell")
	p.click("button", "Run")
	p.shows("leaves the terminal")
	p.do(chromedp.KeyEvent("echo con$((40+2))sole\r"))
	p.shows("con42sole")
	p.pictures("shell")
	p.do(chromedp.KeyEvent("exit\r"))
	p.shows("The command has ended.")
}

// A rollout is watched to its end on the page of its workload, with an approval that it waits for.
func (f *federation) testRollout(t *testing.T, browser context.Context) {
	f.run(t, "kubectl", "apply", "-f", "testdata/shop.yaml")
	p := open(t, browser, f.link(t))
	p.shows("The federation")
	p.visit("#/workloads?namespace=shop")
	p.click("a.name", "web")
	p.shows("Where it runs, and why", "divided by fixed weights", "PropagationPolicy shop/web", "6 of 6 updated, 6 available", "complete")
	f.run(t, "kubectl", "set", "image", "deployment/web", "web=registry.example/web:2", "-n", "shop")
	p.shows("Stage others waits for approval", "3 of 6 updated", "allowed: at most 7 pods, at least 5 available")
	p.pictures("rollout")
	p.click(".asks > button", "Approve others")
	p.click("dialog[open] button.primary", "Approve")
	p.shows("6 of 6 updated, 6 available", "complete")
	p.until("what was seen is drawn", "document.querySelector('.chart path.updated').getAttribute('d').split('V').length > 2")
	p.click(".tabs a", "Overrides")
	p.shows("OverridePolicy north", "spec.template.spec.containers[web].image", "north.example/web:2")
	p.click(".tabs a", "Events")
	p.shows("ScalingReplicaSet", "member1", "member2")
	p.click(".tabs a", "YAML")
	p.click("button", "Edit")
	evaluate[any](p, `{ const t = document.querySelector("textarea.yaml"); t.value = t.value.replace("replicas: 6", "replicaz: 6"); t.dispatchEvent(new Event("input", {bubbles: true})); }`)
	p.click("button", "Check")
	p.shows(`unknown field "spec.replicaz"`)
}

// A manifest is checked and not stored.
func (f *federation) testSimulate(t *testing.T, browser context.Context) {
	p := open(t, browser, f.link(t))
	p.shows("The federation")
	p.visit("#/simulate")
	p.click("button", "Example")
	p.click("button", "Check")
	p.shows("it would be created", "No policy selects it", "Room for pods of this size", "cellplane schedule simulate")
	if _, err := f.kube.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run, reading the Deployment gets %v", err)
	}
}
