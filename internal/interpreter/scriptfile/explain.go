package scriptfile

import (
	"strings"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
)

const introduction = `Edit the scripts below, save and leave the editor. A rule without a script is not customized; an empty file changes nothing.
Lines that begin with --## are not kept, and those that begin with ---@ say what is what: leave them in place.`

// rulesExplained describes the parameters and results of every rule's function.
var rulesExplained = map[configv1alpha1.InterpreterOperation]string{
	configv1alpha1.InterpreterOperationRetain: `Which fields belong to the member cluster, before an object there is updated.
function Retain(desiredObj, observedObj)
  gets      the object as the federation wants it, and as it is in the member
  returns   the object to write, which is the desired one with the fields of the observed one that are to stay
  example   desiredObj.spec.paused = observedObj.spec.paused
            return desiredObj`,
	configv1alpha1.InterpreterOperationInterpretReplica: `How many replicas a template asks for, and what each of them needs. It makes a kind divisible among clusters.
function GetReplicas(obj)
  gets      the template
  returns   a whole number, and a table with resourceRequest, nodeClaim, namespace and priorityClassName, or nothing
  example   local kube = require("kube")
            return obj.spec.replicas, kube.accuratePodRequirements(obj.spec.template)`,
	configv1alpha1.InterpreterOperationInterpretComponent: `The parts of a template that has several kinds of pods.
function GetComponents(obj)
  gets      the template
  returns   a list of tables with name, replicas and replicaRequirements
  example   local kube = require("kube")
            local needs = kube.accuratePodRequirements(obj.spec.worker.template)
            return {{name = "worker", replicas = obj.spec.worker.replicas, replicaRequirements = needs}}`,
	configv1alpha1.InterpreterOperationReviseReplica: `How the number of replicas is set in what one cluster gets.
function ReviseReplica(obj, desiredReplica)
  gets      the template, and the replicas of the cluster
  returns   the object with that many replicas
  example   obj.spec.replicas = desiredReplica
            return obj`,
	configv1alpha1.InterpreterOperationInterpretStatus: `What of the status in a member is reported. Without a script it is all of it.
function ReflectStatus(observedObj)
  gets      the object as it is in the member
  returns   a table, which is the status of this cluster in the binding
  example   return {readyReplicas = observedObj.status.readyReplicas}`,
	configv1alpha1.InterpreterOperationAggregateStatus: `What the statuses of the members add up to.
function AggregateStatus(desiredObj, statusItems)
  gets      the template, and a list of tables with clusterName, applied, and where there is any status, health and appliedMessage
  returns   the template with its status set
  example   local ready = 0
            for i = 1, #statusItems do
              if statusItems[i].status ~= nil then ready = ready + (statusItems[i].status.readyReplicas or 0) end
            end
            desiredObj.status = {readyReplicas = ready}
            return desiredObj`,
	configv1alpha1.InterpreterOperationInterpretHealth: `Whether an object in a member is healthy.
function InterpretHealth(observedObj)
  gets      the object as it is in the member
  returns   true or false
  example   return observedObj.status.readyReplicas == observedObj.spec.replicas`,
	configv1alpha1.InterpreterOperationInterpretDependency: `Which other objects have to be where this one is. Policies with propagateDeps take them along.
function GetDependencies(desiredObj)
  gets      the template
  returns   a list of tables with apiVersion, kind, namespace, and a name or a labelSelector
  example   local kube = require("kube")
            return kube.getPodDependencies(desiredObj.spec.template, desiredObj.metadata.namespace)`,
	configv1alpha1.InterpreterOperationInterpretRollout: `The bounds of a rolling update, and how far it is. With ReviseRollout it makes the bounds hold for all clusters together.
function InterpretRollout(obj)
  gets      the template, or the object as it is in a member
  returns   a table with replicas, maxSurge, maxUnavailable and paused, and of an object in a member also observedGeneration, pods, updated,
            available, terminating and failed; nothing if the object is not updated step by step
  example   local status = obj.status or {}
            return {replicas = obj.spec.replicas, maxUnavailable = obj.spec.maxUnavailable, observedGeneration = status.observedGeneration,
              pods = status.replicas, updated = status.updatedReplicas, available = status.availableReplicas}`,
	configv1alpha1.InterpreterOperationReviseRollout: `How a cluster is told what it may do during a rolling update.
function ReviseRollout(desiredObj, grant)
  gets      the object for one cluster, and a table with replicas, maxSurge, maxUnavailable (whole numbers) and paused
  returns   the object with them
  example   desiredObj.spec.replicas = grant.replicas
            desiredObj.spec.maxUnavailable = grant.maxUnavailable
            return desiredObj`,
}

// Explain returns a file with explanations: how to edit it, its errors, and optionally the functions. It replaces
// earlier explanations.
func Explain(file, fault string, rules bool) string {
	var explained strings.Builder
	comment(&explained, introduction)
	if fault != "" {
		comment(&explained, "\n"+fault)
	}
	comment(&explained, "")
	for line := range strings.Lines(Bare(file)) {
		explained.WriteString(line)
		if mark, value := cutMark(line); mark == ruleMark && rules {
			if !strings.HasSuffix(line, "\n") {
				explained.WriteString("\n")
			}
			rule, _ := ruleCalled(value) // unknown rules are not explained
			comment(&explained, rulesExplained[rule])
		}
	}
	return explained.String()
}

func comment(to *strings.Builder, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		to.WriteString(strings.TrimRight(explanation+" "+line, " ") + "\n")
	}
}
