{{#env}}
export {{variable:plain}}={{value}}
{{#apptainer}}
export APPTAINERENV_{{variable:plain}}={{value}}
{{/apptainer}}
{{/env}}
{{#secrets}}
{{variable:plain}}=$(cat {{file}}) || exit 3
export {{variable:plain}}
{{/secrets}}
{{#apptainer}}
# A variable of the image counts more than one of the same name here, unless that has the prefix; no value is evaluated.
export APPTAINER_NO_EVAL=1
{{/apptainer}}
