#!/usr/bin/env bash
# Holds the supplier for EC2 against moto, an emulator of AWS that others wrote: a second opinion on the form of calls and answers.
# Moto knows nothing of client tokens, stock, quotas or reservations: those are tried against the peer of our own. Needs Python with pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
test=$(tests/build.sh | awk '$1 == "test" && $2 == "moto" { print $3 }')
[ -n "$test" ] || { echo "aws-moto.sh: no test is built (tests/build.sh)" >&2; exit 1; }

dir=$(mktemp -d)
moto=''
finish() {
  [ -z "$moto" ] || kill "$moto" 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

python3 -m pip install --quiet --root-user-action=ignore --target "$dir/python" 'moto[ec2,server]==5.2.5'
export PYTHONPATH=$dir/python PYTHONDONTWRITEBYTECODE=1
export AWS_ACCESS_KEY_ID=AKIDSTOKERTEST AWS_SECRET_ACCESS_KEY=secret AWS_DEFAULT_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python3 -m moto.server -H 127.0.0.1 -p "$port" >"$dir/log" 2>&1 &
moto=$!
export STOKER_MOTO_URL=http://127.0.0.1:$port
for _ in $(seq 200); do
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
  sleep 0.1
done

# What an operator has before Stoker comes: a network that bears a tag, a profile, an image under a parameter, a queue with a rule.
python3 - <<'PYTHON'
import boto3, json, os
url = os.environ["STOKER_MOTO_URL"]
client = lambda service: boto3.client(service, endpoint_url=url)
ec2, iam, ssm, sqs, events = (client(name) for name in ("ec2", "iam", "ssm", "sqs", "events"))
tag = [{"Key": "stoker.dev/discovery", "Value": "prod"}]
subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]]
groups = [one["GroupId"] for one in ec2.describe_security_groups()["SecurityGroups"]]
ec2.create_tags(Resources=subnets + groups, Tags=tag)
iam.create_instance_profile(InstanceProfileName="stoker-node")
image = next(one for one in ec2.describe_images()["Images"] if one["Architecture"] == "x86_64")
ssm.put_parameter(Name="/stoker/image", Value=image["ImageId"], Type="String")
queue = sqs.create_queue(QueueName="stoker-moto")["QueueUrl"]
arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
events.put_rule(Name="stoker", EventPattern=json.dumps(pattern))
events.put_targets(Rule="stoker", Targets=[{"Id": "queue", "Arn": arn}])
PYTHON

# The notice comes by the way that it takes on AWS: an event, a rule, the queue.
cat >"$dir/notice.py" <<'PYTHON'
import boto3, json, os, sys
detail = {"instance-id": sys.argv[1], "instance-action": "terminate"}
entry = {"Source": "aws.ec2", "DetailType": "EC2 Spot Instance Interruption Warning", "Detail": json.dumps(detail)}
boto3.client("events", endpoint_url=os.environ["STOKER_MOTO_URL"]).put_events(Entries=[entry])
PYTHON
export STOKER_MOTO_NOTICE=$dir/notice.py

if ! (cd provider/aws && "$test" --quiet --ignored); then
  tail -n 40 "$dir/log"
  exit 1
fi
