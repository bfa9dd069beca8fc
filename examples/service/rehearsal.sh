#!/bin/sh
# rehearsal.sh FOLDER HOST: makes the folders of three hosts, ready to start: FOLDER/lead, clinic-a and clinic-b.
# HOST is the name under which the sites reach the aggregator. Keys that one person made for all sites serve no real run.
set -eu
folder=$1 host=$2
mkdir -p "$folder"
cd "$folder"
fedfair workspace create lead
sed -i.bak "s/host: localhost/host: $host/" lead/plan/plan.yaml
rm lead/plan/plan.yaml.bak
name=lead
(
  cd lead
  fedfair certs authority --federation $name
  fedfair certs request --name aggregator --federation $name
  fedfair certs sign aggregator.request.json --host "$host" --host localhost --yes
)
for site in clinic-a clinic-b; do
  mkdir $site
  (cd $site && fedfair certs request --name $site --federation $name)
  (cd lead && fedfair certs sign ../$site/$site.request.json --yes)
done
(
  cd lead
  fedfair plan enroll ../clinic-a/clinic-a.request.json ../clinic-b/clinic-b.request.json --yes
  fedfair workspace export lead.zip
)
for site in clinic-a clinic-b; do
  (
    cd $site
    fedfair workspace import ../lead/lead.zip . --name $site
    fedfair certs install ../lead/$site.certificate.pem --yes
    fedfair plan approve --name $site --yes
  )
done
